"""Alarms over the rows of metrics.jsonl. Without torch.

Invariants: an alarm is told once when it begins, and again only after it had ended; what it says depends on the rows
alone, so that a resumed run, which reads the rows that are there, goes on as one that was never interrupted.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from callwright.training.config import Config
from callwright.training.sections.alarms import AlarmName

MARK = "alarm/"  # begins the key of an alarm in the row in which it began; the value is the mean that set it off
STOP = "stop/"  # the same of the alarm that ended the run


@dataclass(frozen=True, slots=True)
class Rule:
    """``metric`` above its threshold, or below it, means ``means``."""

    name: AlarmName
    metric: str
    above: bool
    means: str


RULES = (
    Rule("entropy_low", "entropy", False, "the policy has stopped to try anything else"),
    Rule("entropy_high", "entropy", True, "the policy writes noise"),
    Rule("length", "budget_spent", True, "rollouts run into their token budget"),
    Rule("repeated_ngrams", "repeated_ngrams", True, "the policy repeats itself"),
    Rule("valid_call_rate", "valid_call_rate", False, "most calls are refused"),
    Rule("tool_rate", "calls_per_rollout", False, "the policy has given up calling tools"),
    Rule("reward_without_answer", "reward_without_answer", True, "rollouts are paid that answer nothing"),
    Rule("zero_variance_share", "zero_variance_share", True, "groups have no spread, so nothing is learned"),
)


@dataclass(frozen=True, slots=True)
class Alarm:
    """One that began. ``value`` is the mean that set it off."""

    name: AlarmName
    value: float
    text: str


class Alarms:
    """The alarms of one run, fed with its rows in order; ``rows`` are those that an earlier start wrote."""

    def __init__(self, config: Config, rows: Iterable[Mapping[str, float]] = ()) -> None:
        self._settings = config.alarms
        self._recent: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=config.alarms.window))
        self._most_calls = 0.0
        self._on: set[AlarmName] = set()
        for row in rows:
            self.look(row)

    def look(self, row: Mapping[str, float]) -> list[Alarm]:
        """The alarms that begin with this row."""
        for metric in {rule.metric for rule in RULES} & row.keys():
            self._recent[metric].append(row[metric])
        began = []
        for rule in RULES:
            alarm = self._alarm(rule)
            if alarm is None:
                self._on.discard(rule.name)
            elif rule.name not in self._on:
                self._on.add(rule.name)
                began.append(alarm)
        return began

    def _alarm(self, rule: Rule) -> Alarm | None:
        recent = self._recent[rule.metric]
        if len(recent) < self._settings.window:
            return None
        mean = sum(recent) / len(recent)
        limit = self._limit(rule.name, mean)
        if limit is None or not (mean > limit if rule.above else mean < limit):
            return None
        beyond = "above" if rule.above else "below"
        text = f"{rule.metric} {mean:.3g}, the mean of {len(recent)} batches, is {beyond} {limit:.3g}: {rule.means}"
        return Alarm(rule.name, mean, text)

    def _limit(self, name: AlarmName, mean: float) -> float | None:
        """The threshold in the unit of the metric; None where the alarm is off."""
        limit: float | None = getattr(self._settings, name)
        if limit is None:
            return None
        if name == "tool_rate":
            self._most_calls = max(self._most_calls, mean)
            return limit * self._most_calls
        return limit
