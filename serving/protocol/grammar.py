"""A decoding grammar from tool declarations, as EBNF: the notation of llama.cpp, which vLLM's back ends read too.

Invariants: a turn that the grammar allows breaks no rule of its dialect, and each of its calls is one that the
validator accepts (a loose one: but for a key of a free value that may come twice).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from callwright.serving.protocol.grammar_terminals import literal, solid_text
from callwright.serving.protocol.grammar_values import Values
from callwright.serving.protocol.values import Tool, compact_json


@dataclass(frozen=True, slots=True)
class Form:
    """What a turn must be beyond the rules of its dialect.

    ``must_call``: it calls; ``one_call``: at most once. ``answer``: the JSON Schema of an answer (None: any text).
    ``opened``: the answer's opener stands already, and nothing but the answer may follow. ``loose``: objects that a
    schema leaves free hold any number of keys.
    """

    must_call: bool = False
    one_call: bool = False
    answer: Mapping[str, Any] | None = None
    opened: bool = False
    loose: bool = False


FREE = Form()


class Rules:
    """The rules of one grammar, while they are written."""

    def __init__(self, form: Form) -> None:
        self._form = form
        self._rules: dict[str, str] = {
            "text": "[^<]*",  # no marker can stand in it, nor begin in it: some engines read terminals greedily
            "think": '"<think>" text "</think>" "\\n"?',
            "answer": f"[ \\n]* {solid_text()} text",
        }
        self._calls = Values(self._rules, loose=form.loose)

    def turn(self, call: str | None, answer: str) -> str:
        """The whole grammar: a turn may think, and then is a call (None: there is none to make) or an answer."""
        if self._form.opened:
            root = answer
        elif self._form.must_call:
            if call is None:
                raise ValueError("there is no tool to call")
            root = f"think? ({call})"
        else:
            root = f"think? ({answer if call is None else f'{answer} | {call}'})"
        rules = {"root": root, **self._rules}
        return "\n".join(f"{name} ::= {right}" for name, right in rules.items()) + "\n"

    def answered(self, plain: str) -> str:
        """What an answer is: ``plain``, a rule, unless the form has a schema for it."""
        if self._form.answer is None:
            return plain
        return Values(self._rules, plain=True, loose=True).value(self._form.answer)

    def value(self, schema: Any, root: Mapping[str, Any] | None = None) -> str:
        """A rule of the JSON values that the schema allows. Raises ValueError where there are none."""
        return self._calls.value(schema, root)

    def named_call(self, name: str, arguments: str, tools: Sequence[Tool] | None) -> str:
        """A call ``{name, arguments}`` of one of the tools; of any where none are declared."""
        values = self._calls
        if tools is None:
            kinds = [(values.any_text({"minLength": 1}), values.free_object())]
        else:
            kinds = [
                (literal(compact_json(tool.name)), values.value({"type": "object", **tool.input_schema}))
                for tool in tools
            ]
        calls = [values.pairs([(name, True, named), (arguments, True, given)]) for named, given in kinds]
        return values.add("call", " | ".join(calls))
