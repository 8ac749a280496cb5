"""What is evaluated, and how."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from callwright.training.sections.base import Count, Names, Positive, Rate, Section

EvalMode = Literal["greedy", "sampled", "closed_book"]
EvalSplit = Literal["held_out", "train"]


class Eval(Section):
    """Evaluation before, during and after training, on tasks that training never draws."""

    benchmark: Names = ()
    """Benchmarks or task families that the verb `eval` runs in place of the tasks; short: `benchmark=gsm8k,math500`."""
    rows: str | None = None
    """A benchmark's rows: a JSONL file, or a folder of samples; null reads the hub. Short: `rows=`."""
    limit: Positive | None = None
    """Rows of each benchmark, the first ones; null takes all. Short: `limit=`."""
    documents: str | None = None
    """A search corpus for benchmarks, JSONL of `{title, text}`: rows that it cannot answer are left out. Short:
    `documents=`."""
    split: EvalSplit = "held_out"
    """`train` makes the verb `eval` draw tasks of training: to collect traces, for a score tells nothing there."""
    n: Positive = 512
    """Tasks with new seeds."""
    n_slices: Count = 256
    """Tasks in each other slice (unseen template, composition, length)."""
    modes: Annotated[tuple[EvalMode, ...], Field(strict=False, min_length=1)] = ("greedy", "sampled", "closed_book")
    """What `eval` runs; `train` always runs all. `closed_book` demands the answer at once, without a call."""
    samples: Positive = 1
    """Sampled rollouts a task; greedy takes one. Of a benchmark with more than one, `samples=`, all are sampled."""
    temperature: Rate = 1.0
    """Temperature of the sampled evaluation."""
    chat_temperature: Annotated[float, Field(ge=0)] = 0.0
    """Temperature of `chat`; 0 is greedy."""
