"""Prompt caching: two separate wishes, to keep a prefix (for how long) and a key to find it by, on a tag of their own.

Invariants: nothing set sends nothing; a wish that the tag has no field for sends nothing either, and is noted; the two
ways in which OpenAI names a lifetime are never sent together (the older one is never sent).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from callwright.serving.wires.base import Json, Loss, LossKind, Translation
from callwright.serving.wires.models import model_table


class CacheFormat(StrEnum):
    OPENAI = "openai"
    RESPONSES = "responses"
    ANTHROPIC = "anthropic"
    GEMINI = "gemini"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class CacheCapabilities:
    """Whether the tag has a field to ask for caching, which lifetimes it takes, and whether it takes a key."""

    enable: bool = False
    ttl: tuple[str, ...] = ()
    key: bool = False


CAPABILITIES = {
    CacheFormat.OPENAI: CacheCapabilities(enable=True, ttl=("30m",), key=True),
    CacheFormat.RESPONSES: CacheCapabilities(enable=True, ttl=("30m", "12h"), key=True),
    CacheFormat.ANTHROPIC: CacheCapabilities(enable=True, ttl=("5m", "1h")),
    CacheFormat.GEMINI: CacheCapabilities(),
    CacheFormat.NONE: CacheCapabilities(),
}


@dataclass(frozen=True, slots=True)
class PromptCache:
    """What is asked for. ``ttl`` goes with ``enable``."""

    enable: bool = False
    ttl: str | None = None
    key: str | None = None

    def over(self, default: PromptCache) -> PromptCache:
        """This request on top of an engine's default, field by field."""
        return PromptCache(
            self.enable or default.enable,
            default.ttl if self.ttl is None else self.ttl,
            default.key if self.key is None else self.key,
        )

    def to(self, tag: str, *, model: str = "") -> Translation:
        """The fields of a request."""
        tag = CacheFormat(tag)
        can = CAPABILITIES[tag]
        losses: list[Loss] = []
        fields: Json = {}
        # OpenAI's models cache by themselves; the newer ones also take options.
        openai = tag in (CacheFormat.OPENAI, CacheFormat.RESPONSES)
        enable = can.enable and (not openai or model_table().gates(model).get("cache_options") is True)
        ttl = self.ttl if enable and self.enable and self.ttl in can.ttl else None
        if self.key is not None and can.key:
            fields["prompt_cache_key"] = self.key
        elif self.key is not None:
            losses.append(Loss(LossKind.CACHE_KEY, f"{tag} has no field for it", self.key))
        if self.enable and not enable:
            losses.append(Loss(LossKind.CACHE, f"{model or tag} has no field for it"))
        if self.ttl is not None and ttl is None:
            takes = ", ".join(can.ttl) if enable and self.enable else "none here"
            losses.append(Loss(LossKind.CACHE_TTL, f"lifetimes: {takes}", self.ttl, "nothing"))
        if self.enable and enable:
            lifetime = {} if ttl is None else {"ttl": ttl}
            if openai:
                fields["prompt_cache_options"] = {"mode": "implicit", **lifetime}
            else:
                fields["cache_control"] = {"type": "ephemeral", **lifetime}
        return Translation(fields, tuple(losses))
