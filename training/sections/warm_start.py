"""The supervised start."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from callwright.training.sections.base import Free, Positive, Rate, Section, Share


class WarmStage(Section):
    """One entry of the list `warm_start.stages`: how its scripted solvers behave, and for how long."""

    steps: Positive = 300
    """Optimizer steps."""
    traces: Positive = 6400
    """Distinct traces; they are drawn again when the steps need more."""
    guess: Share = 0.0
    """Share of solvers that answer with a guess at once."""
    slip: Share = 0.0
    """Share of solvers that answer wrongly where no call is needed."""
    stray: Share = 0.0
    """Share of solvers that begin with a needless call of another tool."""
    leave: Share = 0.0
    """Chance, after each call, that a solver breaks off and guesses."""
    copying: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of rows that only repeat a random text: how a model from scratch learns to copy keys of any length."""
    lr: Rate = 3e-3
    """AdamW learning rate at the stage's start; it falls linearly to 0."""
    muon_lr: Rate | None = None
    """Learning rate of Muon on the hidden matrices; null leaves them to AdamW."""


class WarmStart(Section):
    """Supervised start on traces of scripted solvers, or of another model (TRL SFT)."""

    checkpoint: str | None = None
    """Where to begin instead of at `model.path`: `quickstart` (the shipped warm start), a folder, or a run folder."""
    traces: str | None = None
    """A folder of traces (from `callwright eval MODEL eval.split=train`) to learn from instead of scripted solvers."""
    stages: Annotated[tuple[WarmStage, ...], Field(strict=False)] = ()
    """The stages, one after another; none starts GRPO from the model as it is."""
    batch: Positive = 64
    """Traces a step."""
    on_results: bool = False
    """Also learn to predict tool results: more copying to learn from, for a model that starts from nothing."""
    trl: Free = Field(default_factory=dict)
    """Passed unrenamed to trl.SFTConfig."""

    @model_validator(mode="after")
    def _traces_are_learned_in_stages(self) -> Self:
        if self.traces is not None and not self.stages:
            raise ValueError("traces are learned in stages: say warm_start.stages=[{steps: 100}]")
        return self
