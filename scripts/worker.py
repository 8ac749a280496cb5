"""``callwright worker``: one tool's executors as a process, many at once on one queue."""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import Annotated

import typer

from callwright.scripts.common import config_from_words, shared_settings
from callwright.scripts.train import Words
from callwright.serving.errors import UserError

log = logging.getLogger(__name__)

ToolArgument = Annotated[str, typer.Argument(metavar="TOOL", help="The tool whose calls it runs: web, code, ...")]


def worker(tool: ToolArgument, words: Words = None) -> None:
    """Run one tool's calls from its queue until told to stop (SIGTERM or Ctrl-C: it finishes what it has in hand).

    It takes the config of the run that it serves, which names this tool in executors.external.
    """
    config = config_from_words(words or [], default="quickstart")
    from callwright.envs.executors.brokers import open_broker
    from callwright.envs.executors.registry import TOOLS
    from callwright.envs.executors.worker_process import WorkerProcess
    from callwright.envs.tasks.source import open_source
    from callwright.training.executor_settings import searches_tasks

    if tool not in TOOLS:
        raise UserError(TOOLS.missing(tool))
    # The libraries below ours report only what is wrong.
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("callwright").setLevel(logging.INFO)
    settings = shared_settings(config, (tool,))
    if tool not in config.executors.external:
        log.info("a run sends its calls here where its config has executors.external=[%s]", tool)
    documents = open_source(config.tasks, config.seed).documents() if tool == "web" and searches_tasks(config) else None

    async def run() -> None:
        await WorkerProcess(TOOLS[tool].tool, settings, open_broker(settings), documents).run()

    asyncio.run(run())
