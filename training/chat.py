"""Chat with a checkpoint on standard input: its events stream as they come, its calls run for real."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable
from typing import TextIO

from rich.console import Console

from callwright.envs.policy import Policy
from callwright.envs.rewards import ungraded
from callwright.envs.rollout import rollout
from callwright.envs.rollout_record import Rollout
from callwright.envs.tasks.task import Task
from callwright.envs.trajectory import Outcome
from callwright.serving.engines.sampler import address
from callwright.serving.protocol import Event, EventType
from callwright.serving.protocol.delivery import Deliverer, Delivery
from callwright.serving.turn import OnEvent
from callwright.training.config import Config
from callwright.training.session import Session, open_session

_STYLES = {
    EventType.THINK: "dim italic",
    EventType.CALL: "bold cyan",
    EventType.RESULT: "green",
    EventType.RESPOND: "bold",
    EventType.ERROR: "red",
    EventType.METRIC: "dim",
    EventType.INTERRUPT: "red",
    EventType.CANCELLED: "red",
}
# Who asked has just typed it; the others show by themselves.
_SILENT = (EventType.USER, EventType.EXECUTE, EventType.END)
SETTLE_S = 5.0  # how long an interrupted answer may take to stop


def chat(
    config: Config,
    lines: Iterable[str] | None = None,
    out: TextIO | None = None,
    on_event: OnEvent | None = None,
    delivery: Delivery = Delivery.TOKEN,
) -> None:
    """Read one question a line and answer each with one rollout. Ends at end of input. Raises UserError.

    An interrupt stops the answer that is being given, and the next question follows; between answers it ends the chat.
    ``on_event`` sees every event, shown or not, in the pieces and at the time that ``delivery`` says.
    """
    console = Console(file=out, highlight=False, soft_wrap=True)
    with open_session(config) as session:
        name = session.adopt_configured()
        source = sys.stdin if lines is None else lines
        if lines is None and sys.stdin.isatty():
            console.print(f"[dim]{name}; one question a line, end with Ctrl-D[/dim]")
        for number, line in enumerate(source):
            if question := line.strip():
                printer = _Printer(console, on_event, delivery)
                _answer(session, session.policy(config.eval.chat_temperature), question, number, printer)


def _answer(session: Session, policy: Policy, question: str, number: int, printer: _Printer) -> None:
    task = Task(key=f"chat/{number}", family="chat", question=question, answer="")
    record = Rollout(task=task, sample=0)
    try:
        session.loop.run(_rollout(session, policy, number, printer, record))
    except KeyboardInterrupt:
        printer(Event(EventType.INTERRUPT))
        if not printer.over.wait(SETTLE_S):
            raise
    printer.end()
    if record.solution is None and record.outcome is Outcome.SCORED:
        printer.say("it ended without a solution")


async def _rollout(session: Session, policy: Policy, number: int, on_event: OnEvent, record: Rollout) -> None:
    with session.episode() as call_tool:
        await rollout(
            record.task,
            policy,
            call_tool,
            ungraded,
            session.config.budgets,
            key=address(session.config.seed, "chat", number),
            session=f"chat-{number}",
            on_event=on_event,
            into=record,
        )


class _Printer:
    """Prints events as they are delivered: pieces of one type run on, another type starts a line."""

    def __init__(self, console: Console, on_event: OnEvent | None, delivery: Delivery) -> None:
        self._console = console
        self._on_event = on_event
        self._deliver = Deliverer(self._take, delivery)
        self._last: EventType | None = None
        self.over = threading.Event()  # the last event of a cancelled answer is out

    def __call__(self, event: Event) -> None:
        self._deliver(event)
        if event.type is EventType.CANCELLED:
            self.over.set()

    def _take(self, event: Event) -> None:
        if self._on_event is not None:
            self._on_event(event)
        self._show(event)

    def _show(self, event: Event) -> None:
        if event.type in _SILENT:
            return
        streamed = event.type in (EventType.THINK, EventType.RESPOND)
        if not streamed or event.type is not self._last:
            self._end_line()
            self._console.print(f"{event.type}: ", style="dim", end="")
        self._last = event.type
        self._console.print(_text(event), style=_STYLES.get(event.type), end="", markup=False)
        self._console.file.flush()

    def say(self, text: str) -> None:
        """A line of our own."""
        self._console.print(text, style="red", markup=False)

    def end(self) -> None:
        """The answer is over: show what is held back, and finish the line."""
        self._deliver.close()
        self._end_line()

    def _end_line(self) -> None:
        if self._last is not None:
            self._console.print()
        self._last = None


def _text(event: Event) -> str:
    """What is shown of an event: its content, or the numbers that it has instead."""
    if event.type is not EventType.METRIC or event.payload is None:
        return event.content
    step, total = event.payload["step"], event.payload["total"]
    return f"read {step['input']}, sampled {step['output']} of {total['output']} tokens, {step['duration']:.2f} s"
