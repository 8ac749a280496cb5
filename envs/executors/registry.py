"""The tools by name: the shipped ones, and those of a user's modules (docs/tutorial.md)."""

from __future__ import annotations

from callwright.envs.executors.azure import AzureExecutor
from callwright.envs.executors.code import CodeExecutor
from callwright.envs.executors.corpus import Corpus
from callwright.envs.executors.executor import Executor
from callwright.envs.executors.settings import AzureSettings, CodeSettings
from callwright.envs.executors.tool_kind import Documents, ToolKind
from callwright.envs.executors.web import CorpusExecutor, WebSettings, search_executor
from callwright.envs.registry import Registry
from callwright.serving.errors import UserError
from callwright.serving.protocol.tools import AZURE, CODE, WEB
from callwright.serving.protocol.values import Tool


def _web(settings: WebSettings, documents: Documents | None) -> Executor:
    return CorpusExecutor(_corpus(settings, documents)) if settings.backend == "corpus" else search_executor(settings)


def _corpus(settings: WebSettings, documents: Documents | None) -> Corpus:
    path = settings.corpus
    if documents is not None:
        return Corpus.build(documents, path)
    if path is None:
        raise UserError("the tool web needs documents: set web.corpus to a collection's file")
    try:
        return Corpus.open(path)
    except FileNotFoundError as error:
        raise UserError(str(error)) from error


TOOLS: Registry[ToolKind] = Registry(
    "tool",
    {
        "web": ToolKind(WEB, _web, WebSettings),
        "code": ToolKind(CODE, lambda settings, documents: CodeExecutor(settings), CodeSettings),
        "azure": ToolKind(AZURE, lambda settings, documents: AzureExecutor(settings), AzureSettings),
    },
)


def known_tools() -> tuple[Tool, ...]:
    """Every tool's declaration, in the order of the registry."""
    return tuple(kind.tool for kind in TOOLS.values())
