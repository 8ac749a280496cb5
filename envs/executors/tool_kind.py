"""What a tool is to a run: what the model is told, what a config may set, and what runs its calls.

The prompt, the parser, the validator, the grammar, the queue and the worker follow from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from callwright.envs.executors.corpus import Document
from callwright.envs.executors.executor import Executor
from callwright.serving.protocol.values import Tool

Documents = Iterable[Document | Sequence[str]]
"""The tasks' own documents, or (title, text) or (title, text, url) of each."""


class ToolSettings(BaseModel):
    """The config's section ``executors.NAME``. A tool with more to set has a subclass of its own."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)

    workers: int = Field(default=8, gt=0)
    """Calls run at once."""
    timeout_s: float = Field(default=10.0, gt=0)
    """Time limit of one call; with `executors.queue_s` on top it is the call's deadline."""


@dataclass(frozen=True, slots=True)
class ToolKind:
    """A tool, declared once. ``executor`` makes what runs its calls from its settings; ``documents`` are there for a
    tool that searches the tasks' own, None for every other."""

    tool: Tool
    executor: Callable[[Any, Documents | None], Executor]
    settings: type[ToolSettings] = ToolSettings
