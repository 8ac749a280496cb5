"""A dialect as a chat template: what our own prompts say, for any program that renders a model's template.

Invariants: the texts are those of ``prompts.py``, and the turns those of the model's own template, rendered around
slots as the codec does; without tools the result is the model's own template. What it cannot do: cut a long result, and
read a result that is JSON text (a mapping it can), because templates have no parser.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

from callwright.serving.protocol.prompts import Frame, execute_frame, hermes_frame, tags_frame
from callwright.serving.protocol.values import Tool, compact_json

_FOLDER = Path(__file__).parent / "templates"
_FRAMES: dict[str, Frame] = {"tags": tags_frame, "execute": execute_frame, "hermes": hermes_frame}
_SLOTS = ("\ue000", "\ue001", "\ue002")
_FILLED = dict(zip(_SLOTS, ("cw_example(tools)", "cw_tools(tools)", "tools[0].name"), strict=True))
_STATE = "{%- set cw = namespace(messages=[], tools=[], results=[], names=[], calls=[], slots=[], open=false) -%}"


def chat_template(dialect: str, base: str, tools: Iterable[Tool], *, explain: bool = True) -> str:
    """A Jinja template over ``base``, the model's own. ``tools`` are those whose examples it knows.

    ``explain``: whether the tools of a request are told in the system prompt. Raises KeyError for another dialect.
    """
    examples = {tool.name: compact_json(dict(tool.example)) for tool in tools if tool.example}
    return "".join(
        [
            _STATE,
            f"{{%- set cw_examples = {_literal(examples)} -%}}",
            f"{{%- set cw_explains = {_literal(explain)} -%}}",
            _file("tools"),
            _file(dialect),
            _protocol(_FRAMES[dialect]),
            _file("conversation"),
            "{%- set cw_written %}{%- set messages = cw.slots -%}{%- set tools = none %}",
            base.removesuffix("\n"),  # as Jinja itself drops a template's last line break
            "{% endset -%}",
            _file("output"),
        ]
    )


def _protocol(frame: Frame) -> str:
    """The macro that writes the system prompt for tools."""
    parts = re.split(f"([{''.join(_SLOTS)}])", frame(*_SLOTS))
    words = [_FILLED.get(part) or _literal(part) for part in parts]
    return f"{{%- macro cw_protocol(tools) -%}}{{{{- {' ~ '.join(words)} -}}}}{{%- endmacro -%}}"


def _literal(value: object) -> str:
    """A Jinja expression for text, a truth value, or a mapping of texts."""
    return json.dumps(value, ensure_ascii=False)


def _file(name: str) -> str:
    return (_FOLDER / f"{name}.jinja").read_text(encoding="utf-8").strip("\n")
