"""The one rollout function: turns of generation looped with tools. Training, evaluation and chat all call it.

Invariants: a rollout always returns, with one outcome; history is spliced, never re-rendered; a rejected call is an
observation and never runs; a failure of ours (broker, executor, engine, wall clock) is an infra fault, never a score.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from callwright.envs.budgets import Budgets
from callwright.envs.policy import Policy
from callwright.envs.rewards import CallRecord, CallTool, Evidence, GradingFault, Reward, set_up
from callwright.envs.rollout_record import Rollout
from callwright.envs.tasks.task import Task
from callwright.envs.trajectory import Given, Outcome, Sampled
from callwright.serving.engines.engine import EngineError
from callwright.serving.protocol import Event, EventType, Parser, ToolCall
from callwright.serving.protocol.dialects import get_dialect
from callwright.serving.protocol.events import Spent, metric
from callwright.serving.protocol.values import new_call_id
from callwright.serving.queues.reply import CallStatus, Reply
from callwright.serving.turn import OnEvent, Turn, turn


class Grader(Protocol):
    """Turns an ended rollout into a reward; may call tools (unit tests), and raises GradingFault when that fails."""

    async def __call__(self, evidence: Evidence, call: CallTool, /) -> Reward: ...


async def rollout(
    task: Task,
    policy: Policy,
    call_tool: CallTool,
    grade: Grader,
    budgets: Budgets,
    *,
    key: int,
    session: str,
    sample: int = 0,
    prefill: str = "",
    on_event: OnEvent | None = None,
    into: Rollout | None = None,
) -> Rollout:
    """Run one task to its outcome. Never raises for a failure of the policy, an executor or the engine.

    ``key`` addresses the random numbers; ``session`` names the rollout to the engine; ``prefill`` is given text put in
    the policy's mouth (the closed-book score opens the solution this way); ``into`` is a new record to fill, for one
    who looks on. Cancelling the task ends it as ``cancelled``, unless the record was given another outcome first, and
    re-raises.
    """
    state = into or Rollout(task=task, sample=sample)
    loop = _Loop(state, policy, call_tool, budgets, key, session, on_event)
    started = time.monotonic()
    try:
        async with asyncio.timeout(budgets.wall_s) as clock:
            state.waiting_for = "what the task begins with is set up"
            await set_up(task, loop.call)
            await loop.run(prefill)
            # A fault of the policy is graded too: it must not earn more than a wrong answer does.
            if state.trajectory.outcome in (None, Outcome.POLICY_FAULT):
                state.waiting_for = "the answer is graded"
                state.reward = await grade(state.evidence, loop.call)
            if state.trajectory.outcome is None:
                state.trajectory.finish(Outcome.SCORED)
    except TimeoutError as error:
        passed = f"wall clock: {budgets.wall_s:g} s passed" if clock.expired() else f"time-out ({error})"
        _fault(state, f"{passed} while {state.waiting_for}")
    except (EngineError, GradingFault) as error:
        _fault(state, str(error))
    except asyncio.CancelledError:
        if state.trajectory.outcome is None:
            state.trajectory.finish(Outcome.CANCELLED, f"while {state.waiting_for}")
        raise
    finally:
        state.seconds = time.monotonic() - started
        policy.engine.release(session)
        loop.say_how_it_ended()
    return state


def _fault(state: Rollout, cause: str) -> None:
    if state.trajectory.outcome is None:
        state.reward = None
        state.trajectory.finish(Outcome.INFRA_FAULT, cause)


@dataclass(slots=True)
class _Loop:
    """The turns of one rollout. Ends with an outcome set (a fault) or unset (the policy finished: grade it)."""

    state: Rollout
    policy: Policy
    call_tool: CallTool
    budgets: Budgets
    key: int
    session: str
    on_event: OnEvent | None
    called: int = 0

    async def call(self, call: ToolCall) -> Reply:
        """Run one call under an id of its address, the n-th of this rollout: what happens to it can be repeated."""
        self.called += 1
        return await self.call_tool(replace(call, id=new_call_id(f"{self.session}|{self.called}")))

    async def run(self, prefill: str) -> None:
        trajectory, policy = self.state.trajectory, self.policy
        trajectory.append(Given(tuple(policy.prompt_ids(self.state.task.question))))
        if prefill:
            trajectory.append(Given(tuple(policy.codec.markers(prefill))))
        self._event(Event(EventType.USER, self.state.task.question))
        while trajectory.outcome is None:
            room = self._room()
            if room <= 0:
                trajectory.finish(Outcome.POLICY_FAULT, "the token budget is spent")
                return
            taken = await self._turn(room, prefill)
            prefill = ""
            # A text that is the answer is none while the budget cut it off.
            if taken.parser.solution is not None and (taken.parser.turn_over or not taken.over_budget):
                self.state.answered.append(len(self.state.calls))
                if not self._follow_up():
                    self.state.solution = taken.parser.solution
                    return
            elif taken.over_budget:
                trajectory.finish(Outcome.POLICY_FAULT, "a turn ran out of its token budget")
            elif not await self._answer(taken):
                return

    def _follow_up(self) -> bool:
        """Say what the user says next. False: nothing, and the answer was the last."""
        followups, number = self.state.task.followups, len(self.state.answered)
        if number > len(followups):
            return False
        text, codec = followups[number - 1], self.policy.codec
        ended = self.state.trajectory.ids[-1] in codec.eos
        self._give(codec.message("user", codec.encode(text), ended=ended))
        self._event(Event(EventType.USER, text))
        return True

    def say_how_it_ended(self) -> None:
        """The last event, where the policy's own text did not give it."""
        outcome, cause = self.state.trajectory.outcome, self.state.trajectory.cause
        if outcome in (Outcome.CANCELLED, Outcome.LATE):
            self._event(Event(EventType.CANCELLED))
        elif outcome is not Outcome.SCORED:
            self._event(Event(EventType.ERROR, cause))
        elif not any(event.type is EventType.END for event in self.state.events):
            self._event(Event(EventType.END))

    def _room(self) -> int:
        trajectory, budgets = self.state.trajectory, self.budgets
        return min(
            budgets.turn_tokens,
            budgets.policy_tokens - trajectory.sampled_tokens,
            budgets.context - len(trajectory.context),
        )

    async def _turn(self, room: int, prefill: str) -> Turn:
        policy, trajectory = self.policy, self.state.trajectory
        self.state.waiting_for = "the engine generates a turn"
        parser = Parser(dialect=policy.dialect, tools=list(policy.tools))
        if prefill:
            parser.feed(prefill)
        started, read = time.monotonic(), len(trajectory.context)
        taken = await turn(
            policy.engine,
            policy.codec,
            parser,
            trajectory.context,
            max_new_tokens=room,
            sampling=policy.sampling,
            key=self.key,
            session=self.session,
            on_event=self.on_event,
            grammar=policy.grammar(prefill),
        )
        completion = taken.completion
        for span in completion.spans():
            trajectory.append(Sampled(*span))
        self.state.events += taken.events
        step = Spent(read, len(completion.ids), time.monotonic() - started)
        self.state.spent += step
        self._event(metric(step, self.state.spent))
        self.state.rejections += parser.refusals
        self.state.violations += sum(violation not in parser.refusals for violation in parser.violations)
        return taken

    async def _answer(self, taken: Turn) -> bool:
        """Run the turn's calls and render what was refused. False: there is nothing to answer, the policy is done."""
        parser, state = taken.parser, self.state
        if not parser.call_blocks and not parser.refusals:
            return False
        if len(state.calls) + len(parser.calls) > self.budgets.calls:
            state.trajectory.finish(Outcome.POLICY_FAULT, f"more than {self.budgets.calls} calls")
            return False
        if parser.refusals and len(state.rejections) > self.budgets.invalid_calls:
            state.trajectory.finish(Outcome.POLICY_FAULT, f"rejected call: {parser.refusals[-1].code}")
            return False
        texts = await self._run_calls(parser.calls) if parser.calls else []
        dialect = get_dialect(self.policy.dialect)
        for refused in parser.refusals:
            texts.append(dialect.render_rejection(refused, self.policy.tools).text)
            if refused not in parser.rejections:  # those are events of the turn already
                self._event(parser.failure(refused))
        if state.trajectory.outcome is None:
            self._splice(texts)
        return True

    async def _run_calls(self, calls: Sequence[ToolCall]) -> list[str]:
        """The results of calls that run side by side, in the order of the calls, as the model will read them."""
        dialect = get_dialect(self.policy.dialect)
        texts = []
        self.state.waiting_for = "waiting for the executor of " + ", ".join(call.name for call in calls)
        started = time.monotonic()
        replies = await asyncio.gather(*(self.call(call) for call in calls))
        self.state.tool_seconds += time.monotonic() - started
        for call, reply in zip(calls, replies, strict=True):
            record = reply.record.decode(errors="replace")
            self.state.calls.append(
                CallRecord(call.name, call.body().decode(), reply.status, record, reply.cause, reply.seconds)
            )
            if reply.status is CallStatus.INFRA_FAULT:
                if self.state.trajectory.outcome is None:
                    cause = reply.cause.removeprefix(f"{call.name}: ")
                    self.state.trajectory.finish(Outcome.INFRA_FAULT, f"{call.name}: {cause}")
                continue
            ok = reply.status is CallStatus.OK
            counts: Mapping[str, int] = {"tools_executed": 1, "success_count": int(ok), "failure_count": int(not ok)}
            self._event(Event(EventType.RESULT, record, counts))
            texts.append(dialect.render_result(reply.record, call.name, self.budgets.result_chars).text)
        return texts

    def _splice(self, texts: Sequence[str]) -> None:
        """Append the results of a turn as given ids: markers around plain text."""
        dialect, codec = get_dialect(self.policy.dialect), self.policy.codec
        ids = [token for piece in dialect.frame_results(texts) for token in codec.wrapped(*piece)]
        if dialect.result_role is not None:
            ended = self.state.trajectory.context[-1] in codec.eos
            ids = codec.message(dialect.result_role, ids, ended=ended)
        self._give(ids)

    def _give(self, ids: Sequence[int]) -> None:
        """Append given ids, where the context has room for them and for a token of the policy."""
        if len(self.state.trajectory.context) + len(ids) >= self.budgets.context:
            self.state.trajectory.finish(Outcome.POLICY_FAULT, "the context budget is spent")
        else:
            self.state.trajectory.append(Given(tuple(ids)))

    def _event(self, event: Event) -> None:
        self.state.events.append(event)
        if self.on_event is not None:
            self.on_event(event)
