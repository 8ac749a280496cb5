"""The command line, ``callwright VERB``: one thin file a verb, and one place that turns errors into exit codes.

0 done; 1 the run failed; 2 the input is wrong; 130 interrupted. An error for the user is one line on standard error; a
fault of ours keeps its traceback. Nothing here, and no verb's module, loads torch before its verb runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import typer

from callwright.scripts.chat import chat
from callwright.scripts.compare import compare
from callwright.scripts.doctor import doctor
from callwright.scripts.eval import evaluate
from callwright.scripts.experiment import experiment
from callwright.scripts.merge import merge
from callwright.scripts.queues import queues
from callwright.scripts.serve import serve
from callwright.scripts.trace import trace
from callwright.scripts.train import train
from callwright.scripts.view import view
from callwright.scripts.worker import worker
from callwright.serving.errors import CallwrightError

app = typer.Typer(
    name="callwright",
    help="Train, serve and evaluate language models that use tools.",
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("train")(train)
app.command("eval")(evaluate)
app.command("compare")(compare)
app.command("chat")(chat)
app.command("trace")(trace)
app.command("view")(view)
app.command("serve")(serve)
app.command("merge")(merge)
app.command("experiment")(experiment)
app.command("worker")(worker)
app.command("queues")(queues)
app.command("doctor")(doctor)


@app.callback()
def _root() -> None:
    """Train, serve and evaluate language models that use tools."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command and exit with its code."""
    sys.exit(run(sys.argv[1:] if argv is None else argv))


def run(argv: Sequence[str]) -> int:
    """Run one command; returns the exit code."""
    try:
        code = app(args=list(argv) or ["--help"], prog_name="callwright", standalone_mode=False)
        sys.stdout.flush()
    except CallwrightError as error:
        return _say(str(error), error.exit_code)
    except typer.TyperException as error:
        return _say(f"{error.format_message()} (see {_command_path(error)} --help)", 2)
    except (KeyboardInterrupt, typer.Abort):
        return _say("interrupted", 130)
    except (BrokenPipeError, SystemExit) as error:
        # The reader of our output went away (`| head`): nothing is wrong, and nothing more can be said. Inside a verb
        # Typer has turned that into SystemExit already.
        if not isinstance(error, BrokenPipeError) and not isinstance(error.__context__, BrokenPipeError):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno() if sys.__stdout__ else 1)
        return 0
    # Typer answers an interrupt inside a verb with the code 130, and anything else with the verb's own value.
    return _say("interrupted", 130) if code == 130 else code if isinstance(code, int) else 0


def _say(message: str, code: int) -> int:
    print("callwright: " + " ".join(message.split()), file=sys.stderr)
    return code


def _command_path(error: typer.TyperException) -> str:
    context = getattr(error, "ctx", None)
    return str(context.command_path) if context is not None else "callwright"
