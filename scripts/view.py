"""``callwright view``: a run's curves and rollouts in a browser, or as one HTML file; two runs side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from callwright.scripts.common import find_run, train_extra
from callwright.serving.errors import UserError

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="runs/NAME, or NAME.")]
SecondArgument = Annotated[Path | None, typer.Argument(metavar="[RUN2]", help="A run to compare it with.")]
HtmlOption = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Write one HTML file that needs no server.")
]
PortOption = Annotated[int, typer.Option("--port", min=0, max=65535, help="On 127.0.0.1; 0 takes a free one.")]


def view(run: RunArgument, second: SecondArgument = None, html: HtmlOption = None, port: PortOption = 8100) -> None:
    """Show a run's curves, events and rollouts, token by token, in a browser; two runs side by side."""
    folders = [find_run(folder) for folder in (run, second) if folder is not None]
    if html is not None:
        _write(html, folders)
        return
    with train_extra("serve"):
        from callwright.training.viewer.app import run_viewer

        run_viewer(folders, port)


def _write(file: Path, folders: list[Path]) -> None:
    from callwright.training.viewer.export import export

    text = export(folders)
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"--html {file}: {error.strerror}") from None
    print(f"{file}: {len(text) / 1e6:.1f} MB")
