"""What the policy is asked."""

from __future__ import annotations

from typing import Self

from pydantic import Field, ValidationError, model_validator

from callwright.envs.tasks.registry import FAMILIES
from callwright.envs.tasks.suite import FamilySpec
from callwright.envs.tasks.world import WorldSpec
from callwright.training.sections.base import Section


class Tasks(Section):
    """What the policy is asked: procedural families over an invented world, or the rows of a benchmark file."""

    world: WorldSpec = WorldSpec()
    families: dict[str, FamilySpec] = Field(default_factory=dict)
    """The mix: a family's name -> its weight and dials."""
    path: str | None = None
    """A benchmark's JSONL file or hub id (GSM8K) in place of the families."""

    @model_validator(mode="after")
    def _known_families(self) -> Self:
        """Refuse an unknown family or dial here, in one line, not when the first task is drawn."""
        for name, spec in self.families.items():
            kind = spec.kind or name
            if kind not in FAMILIES:
                raise ValueError(f"families.{name}: {FAMILIES.missing(kind)}")
            dials = FAMILIES[kind].dials_type
            try:
                dials.model_validate(spec.dials)
            except ValidationError as error:
                first = error.errors()[0]
                dial = ".".join(map(str, first["loc"][:1]))
                known = ", ".join(dials.model_fields) or "none"
                raise ValueError(f"families.{name}.dials.{dial}: {first['msg']} (its dials: {known})") from None
        return self
