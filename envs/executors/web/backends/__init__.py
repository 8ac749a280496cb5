"""The search services, by their name in a config."""

from collections.abc import Mapping

from callwright.envs.executors.web.backends.base import AnswerError, Ask, Backend
from callwright.envs.executors.web.backends.brave import BRAVE
from callwright.envs.executors.web.backends.retriever import RETRIEVER
from callwright.envs.executors.web.backends.searxng import SEARXNG
from callwright.envs.executors.web.backends.serper import SERPER
from callwright.envs.executors.web.backends.tavily import TAVILY

__all__ = ["BACKENDS", "AnswerError", "Ask", "Backend"]

BACKENDS: Mapping[str, Backend] = {backend.name: backend for backend in (SEARXNG, BRAVE, SERPER, TAVILY, RETRIEVER)}
