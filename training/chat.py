"""Chat with a checkpoint on standard input: its events stream as they come, its calls run for real."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TextIO

from rich.console import Console

from callwright.envs.rewards import Reward
from callwright.envs.rollout import Policy, rollout
from callwright.envs.tasks.task import Task
from callwright.serving.engines.sampler import address
from callwright.serving.models import load
from callwright.serving.protocol import Event, EventType
from callwright.training.checkpoints import resolve_checkpoint
from callwright.training.config import Config
from callwright.training.session import Session, open_session

_STYLES = {
    EventType.THINK: "dim italic",
    EventType.CALL: "bold cyan",
    EventType.RESULT: "green",
    EventType.RESPOND: "bold",
    EventType.ERROR: "red",
}


def chat(config: Config, lines: Iterable[str] | None = None, out: TextIO | None = None) -> None:
    """Read one question a line and answer each with one rollout. Ends at end of input. Raises UserError."""
    console = Console(file=out, highlight=False, soft_wrap=True)
    with open_session(config) as session:
        path = resolve_checkpoint(config.model.path)
        session.adopt(load(path, device=config.engine.device, dtype=config.engine.dtype))
        source = sys.stdin if lines is None else lines
        if lines is None and sys.stdin.isatty():
            console.print(f"[dim]{path}; one question a line, end with Ctrl-D[/dim]")
        for number, line in enumerate(source):
            if question := line.strip():
                _answer(session, session.policy(config.eval.chat_temperature), question, number, console)


def _answer(session: Session, policy: Policy, question: str, number: int, console: Console) -> None:
    printer = _Printer(console)
    task = Task(key=f"chat/{number}", family="chat", question=question, answer="")
    done = session.loop.run(
        rollout(
            task,
            policy,
            session.call_tool,
            _unpaid,
            session.config.budgets,
            key=address(session.config.seed, "chat", number),
            session=f"chat-{number}",
            on_event=printer,
        )
    )
    printer.end()
    if done.solution is None:
        console.print(
            f"[{done.outcome}] {done.trajectory.cause or 'it ended without a solution'}", style="red", markup=False
        )


async def _unpaid(task: Task, solution: str | None, call: object, *, clean: bool) -> Reward:
    """A conversation has no reward."""
    return Reward({}, success=False)


class _Printer:
    """Prints events as they come: pieces of one type run on, another type starts a line."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last: EventType | None = None

    def __call__(self, event: Event) -> None:
        if event.type in (EventType.USER, EventType.EXECUTE, EventType.END):
            return
        streamed = event.type in (EventType.THINK, EventType.RESPOND)
        if not streamed or event.type is not self._last:
            self.end()
            self._console.print(f"{event.type}: ", style="dim", end="")
        self._last = event.type
        self._console.print(event.content, style=_STYLES.get(event.type), end="", markup=False)
        self._console.file.flush()

    def end(self) -> None:
        """Finish the line."""
        if self._last is not None:
            self._console.print()
        self._last = None
