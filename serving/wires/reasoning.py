"""How hard a model thinks: one value, placed where each engine wants it, on a tag of its own.

Servers that share a tool wire differ here, so the tag is not the wire format. Invariants: nothing set sends nothing; a
level that the model does not take becomes the nearest that it does, with a note of both; an effort is never clamped
to none, which would switch thinking off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from callwright.serving.wires.base import CapabilityError, Json, Loss, LossKind, Translation
from callwright.serving.wires.models import model_table


class Effort(StrEnum):
    """In order: a later one thinks more."""

    NONE = "none"
    MINIMAL = "minimal"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    XHIGH = "xhigh"
    MAX = "max"


class ReasoningFormat(StrEnum):
    OPENAI = "openai"
    RESPONSES = "responses"
    ANTHROPIC = "anthropic"
    GEMINI = "gemini"
    OLLAMA = "ollama"
    VLLM = "vllm"
    DEEPSEEK = "deepseek"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class ReasoningCapabilities:
    """Which fields the tag has a place for."""

    effort: bool = True
    budget: bool = False
    summary: bool = False


CAPABILITIES = {
    ReasoningFormat.OPENAI: ReasoningCapabilities(),
    ReasoningFormat.RESPONSES: ReasoningCapabilities(summary=True),
    ReasoningFormat.ANTHROPIC: ReasoningCapabilities(budget=True),
    ReasoningFormat.GEMINI: ReasoningCapabilities(budget=True),
    ReasoningFormat.OLLAMA: ReasoningCapabilities(),
    ReasoningFormat.VLLM: ReasoningCapabilities(),
    ReasoningFormat.DEEPSEEK: ReasoningCapabilities(),
    ReasoningFormat.NONE: ReasoningCapabilities(effort=False),
}
# What a tag takes where the table does not know the model.
_LEVELS: dict[ReasoningFormat, tuple[str, ...]] = {
    ReasoningFormat.OPENAI: tuple(Effort),
    ReasoningFormat.RESPONSES: tuple(Effort),
    ReasoningFormat.ANTHROPIC: ("low", "medium", "high", "xhigh", "max"),
    ReasoningFormat.GEMINI: ("minimal", "low", "medium", "high"),
    ReasoningFormat.DEEPSEEK: ("none", "low", "high", "max"),
}
# An effort as a number of tokens, for models that take nothing else.
_BUDGETS = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16384, "xhigh": 24576, "max": 32768}
_MIN_BUDGET = 1024  # the least that Anthropic takes


@dataclass(frozen=True, slots=True)
class Reasoning:
    """What is asked for. Unset fields ask for nothing."""

    effort: Effort | None = None
    budget: int | None = None
    summary: str | None = None

    def __post_init__(self) -> None:
        if self.effort is not None:
            object.__setattr__(self, "effort", Effort(self.effort))

    def over(self, default: Reasoning) -> Reasoning:
        """This request on top of an engine's default, field by field."""
        return Reasoning(
            default.effort if self.effort is None else self.effort,
            default.budget if self.budget is None else self.budget,
            default.summary if self.summary is None else self.summary,
        )

    def to(self, tag: str, *, model: str = "", tools: bool = False, max_tokens: int | None = None) -> Translation:
        """The fields of a request. ``tools``: whether it declares function tools; ``max_tokens``: its limit, if any."""
        return _Placing(ReasoningFormat(tag), self, model, tools, max_tokens).done()


class _Placing:
    """One request's reasoning on its way to one tag."""

    def __init__(self, tag: ReasoningFormat, asked: Reasoning, model: str, tools: bool, max_tokens: int | None) -> None:
        self.tag, self.asked, self.model, self.tools, self.max_tokens = tag, asked, model, tools, max_tokens
        self.gates: Mapping[str, Any] = model_table().gates(model)
        self.losses: list[Loss] = []

    def done(self) -> Translation:
        can = CAPABILITIES[self.tag]
        if self.asked.budget is not None and not can.budget:
            self.lose(LossKind.REASONING_BUDGET, f"{self.tag} has no field for it", self.asked.budget)
        if self.asked.summary is not None and not can.summary:
            self.lose(LossKind.REASONING_SUMMARY, f"{self.tag} has no field for it", self.asked.summary)
        if self.asked.effort is not None and not can.effort:
            self.lose(LossKind.REASONING_EFFORT, f"{self.tag} has no field for it", self.asked.effort)
        return Translation(getattr(self, f"_{self.tag}")(), tuple(self.losses))

    def lose(self, kind: LossKind, why: str, before: Any = None, after: Any = None) -> None:
        self.losses.append(Loss(kind, why, before, after))

    def level(self, allowed: Sequence[str] | None = None) -> str | None:
        """The effort as the model takes it."""
        asked = self.asked.effort
        if asked is None:
            return None
        levels = tuple(self.gates.get("effort", _LEVELS.get(self.tag, tuple(Effort)))) if allowed is None else allowed
        if asked in levels:
            return str(asked)
        level = nearest(asked, levels)
        self.changed(level, f"{self.model or self.tag} takes {', '.join(levels) or 'no effort'}")
        return level

    def changed(self, after: Any, why: str) -> Any:
        self.lose(LossKind.REASONING_EFFORT, why, self.asked.effort, "nothing" if after is None else after)
        return after

    def _none(self) -> Json:
        return {}

    def _openai(self) -> Json:
        level = self.level()
        rule = self.gates.get("chat_tools") if self.tools else None
        if rule == "refused":
            raise CapabilityError(f"{self.model} takes function tools on the wire responses only")
        if (rule == "none" and level != "none") or (rule == "none_if_set" and level not in (None, "none")):
            # Also where nothing was asked for: the model's own default would be refused.
            level = self.changed("none", f"{self.model} takes function tools here with effort none only")
        return {} if level is None else {"reasoning_effort": level}

    def _responses(self) -> Json:
        fields = {"effort": self.level(), "summary": self.asked.summary}
        fields = {key: value for key, value in fields.items() if value is not None}
        return {"reasoning": fields} if fields else {}

    def _anthropic(self) -> Json:
        thinking = self.gates.get("thinking", "adaptive")
        if self.asked.budget is not None and self.asked.effort is None:
            if thinking == "adaptive":
                self.lose(
                    LossKind.REASONING_BUDGET, f"{self.model or self.tag} takes an effort only", self.asked.budget
                )
                return {}
            return self._budget(self.asked.budget, LossKind.REASONING_BUDGET)
        if self.asked.effort is None:
            return {}
        if self.asked.budget is not None:
            self.lose(LossKind.REASONING_BUDGET, "an effort was asked for too", self.asked.budget)
        if self.asked.effort is Effort.NONE:
            return self._off()
        if thinking == "budget":
            budget = _BUDGETS[self.asked.effort]
            self.changed(f"{budget} tokens", f"{self.model} takes a budget only")
            return self._budget(budget, LossKind.REASONING_EFFORT)
        return {"output_config": {"effort": self.level()}, "thinking": {"type": "adaptive"}}

    def _off(self) -> Json:
        off = self.gates.get("off", "disabled")
        if off is not False:
            # A request that switches off names no effort, so that none above high can stand beside it.
            return {"thinking": {"type": "between_tools" if off == "between_tools" else "disabled"}}
        levels = self.gates["effort"]
        effort = self.changed(levels[0], f"{self.model} cannot stop thinking")
        return {"output_config": {"effort": effort}, "thinking": {"type": "adaptive"}}

    def _budget(self, asked: int, kind: LossKind) -> Json:
        budget = max(asked, _MIN_BUDGET)
        if self.max_tokens is not None:
            budget = min(budget, self.max_tokens - 1)
        if budget < _MIN_BUDGET:
            self.lose(kind, f"max_tokens leaves no room for {_MIN_BUDGET} tokens of thinking", asked, "nothing")
            return {}
        if budget != asked:
            self.lose(kind, "a budget is at least 1024 and below max_tokens", asked, budget)
        return {"thinking": {"type": "enabled", "budget_tokens": budget}}

    def _gemini(self) -> Json:
        if self.asked.effort is None and self.asked.budget is None:
            return {}
        if self.gates.get("thinking", "level") == "level":
            if self.asked.budget is not None:
                self.lose(LossKind.REASONING_BUDGET, f"{self.model or self.tag} takes a level", self.asked.budget)
            level = self.level()
            return {} if level is None else _thinking_config(thinkingLevel=level.upper())
        low, high = self.gates["budget"]
        if self.asked.budget is not None and self.asked.effort is not None:
            self.lose(LossKind.REASONING_EFFORT, "a budget was asked for too, and only one may be sent")
        budget = self.asked.budget
        if budget is None:
            effort = self.asked.effort or Effort.NONE
            budget = 0 if effort is Effort.NONE else _BUDGETS[effort]
            self.changed(f"{budget} tokens", f"{self.model} takes a budget only")
        if (budget == 0 and self.gates.get("off")) or budget == -1:  # -1: as much as the model likes
            return _thinking_config(thinkingBudget=budget)
        fitting = min(max(budget, low), high)
        if fitting != budget:
            self.lose(LossKind.REASONING_BUDGET, f"{self.model} takes {low} to {high} tokens", budget, fitting)
        return _thinking_config(thinkingBudget=fitting)

    def _ollama(self) -> Json:
        if self.asked.effort is None:
            return {}
        if "effort" in self.gates:
            level = self.level()
            return {} if level is None else {"think": False if level == Effort.NONE else level}
        if self.asked.effort is Effort.NONE:
            return {"think": False}
        # A level that the model does not list is taken for its default without a word; true is what all others take.
        return {"think": self.changed(True, f"{self.model or 'the model'} is not known to take levels")}

    def _vllm(self) -> Json:
        if self.asked.effort is None:
            return {}
        word = self.gates.get("switch")
        if word is None:
            self.changed(None, f"the word of {self.model or 'this model'}'s chat template is not known")
            return {}
        on = self.asked.effort is not Effort.NONE
        if on:
            self.changed(True, "a chat template knows on and off only")
        return {"chat_template_kwargs": {word: on}}

    def _deepseek(self) -> Json:
        level = self.level(_LEVELS[ReasoningFormat.DEEPSEEK])
        if level is None:
            return {}
        if level == Effort.NONE:
            return {"thinking": {"type": "disabled"}}
        return {"thinking": {"type": "enabled"}, "reasoning_effort": level}


def nearest(asked: Effort, levels: Sequence[str]) -> str | None:
    """The level closest to what was asked, the lower of two; off only where off was asked for."""
    rank = {str(effort): number for number, effort in enumerate(Effort)}
    options = sorted((level for level in levels if level != Effort.NONE), key=lambda level: rank[level])
    return min(options, key=lambda level: abs(rank[level] - rank[asked]), default=None)


def _thinking_config(**fields: Any) -> Json:
    return {"generationConfig": {"thinkingConfig": fields}}
