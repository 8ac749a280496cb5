"""``callwright chat``: talk to a checkpoint; its events stream as they come and its calls are run."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from callwright.scripts.common import Overrides, config_of_checkpoint, train_extra
from callwright.scripts.eval import CheckpointArgument, ConfigOption
from callwright.serving.errors import UserError
from callwright.serving.protocol.delivery import Delivery

if TYPE_CHECKING:
    from callwright.serving.protocol import Event

EventsOption = Annotated[Path | None, typer.Option("--events", metavar="FILE", help="Append every event, one a line.")]

StreamOption = Annotated[
    Delivery, typer.Option("--stream", help="Show text as its tokens come, a stretch at a time, or all at the end.")
]


def chat(
    checkpoint: CheckpointArgument,
    overrides: Overrides = None,
    config: ConfigOption = None,
    events: EventsOption = None,
    stream: StreamOption = Delivery.TOKEN,
) -> None:
    """Chat with a checkpoint. It reads questions from standard input, one a line, and runs the tools it calls."""
    resolved = config_of_checkpoint(checkpoint, overrides or [], config)
    with train_extra(), ExitStack() as stack:
        from callwright.training.chat import chat as run_chat

        try:
            file = None if events is None else stack.enter_context(events.open("a", encoding="utf-8"))
        except OSError as error:
            raise UserError(f"--events {events}: {error.strerror}") from None

        def write(event: Event) -> None:
            if file is not None:
                file.write(json.dumps(event.to_dict()) + "\n")
                file.flush()

        run_chat(resolved, on_event=write, delivery=stream)
