"""The ``web`` tool: search in a local collection, or through one of the search back ends."""

from callwright.envs.executors.web.local import CorpusExecutor
from callwright.envs.executors.web.make import search_executor
from callwright.envs.executors.web.settings import WebSettings

__all__ = ["CorpusExecutor", "WebSettings", "search_executor"]
