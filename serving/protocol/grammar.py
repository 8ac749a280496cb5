"""A decoding grammar from tool declarations, as EBNF: the notation of llama.cpp, which vLLM's back ends read too.

Invariants: a turn that the grammar allows breaks no rule of its dialect, and each of its calls is one that the
validator accepts; keys stand in declared order, optional ones may be left out, nothing undeclared is written. A free
object has at most one key and free values nest three deep, because no grammar can see that a key occurs twice.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from callwright.serving.protocol.grammar_terminals import integer, literal, number, string, string_rules
from callwright.serving.protocol.rendering import marker_safe_json
from callwright.serving.protocol.schema import check
from callwright.serving.protocol.values import Tool, compact_json

_DEPTH = 3  # of a value that the schema leaves free
_SPACE = '" "?'
_NO_BLANK = r"[^<\x00-\x20\x7f-\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"


class Rules:
    """The rules of one grammar, while they are written."""

    def __init__(self) -> None:
        self._rules: dict[str, str] = {
            "text": "[^<]*",  # no marker can stand in it, nor begin in it: some engines read terminals greedily
            "think": '"<think>" text "</think>" "\\n"?',
            "answer": f"[ \\n]* {_NO_BLANK} text",
            **string_rules(),
        }

    def turn(self, body: str) -> str:
        """The whole grammar: a turn may think, and then is ``body``."""
        rules = {"root": f"think? ({body})", **self._rules}
        return "\n".join(f"{name} ::= {right}" for name, right in rules.items()) + "\n"

    def named_call(self, name: str, arguments: str, tools: Sequence[Tool] | None) -> str:
        """A call ``{name, arguments}`` of one of the tools; of any where none are declared."""
        if tools is None:
            kinds = [(self._add("any-name", string({"minLength": 1})), self._free_object(_DEPTH))]
        else:
            kinds = [(literal(compact_json(tool.name)), self.value(tool.input_schema)) for tool in tools]
        calls = [self._pairs([(name, True, named), (arguments, True, given)]) for named, given in kinds]
        return self._add("call", " | ".join(calls))

    def value(self, schema: Any) -> str:
        """A rule of the JSON values that the schema allows. Raises ValueError where there are none."""
        right = self._value(schema if isinstance(schema, Mapping) else {})
        return self._add(f"value-{len(self._rules)}", right)

    def _add(self, name: str, right: str) -> str:
        for known, rule in self._rules.items():
            if rule == right:
                return known
        self._rules[name] = right
        return name

    def _value(self, schema: Mapping[str, Any]) -> str:
        if "const" in schema or "enum" in schema:
            options = [schema["const"]] if "const" in schema else schema["enum"]
            allowed = [option for option in options if check(option, schema) is None]
            ways = (compact_json, marker_safe_json, json.dumps)  # of writing the same value
            texts = list(dict.fromkeys(literal(way(option)) for option in allowed for way in ways))
            if not texts:
                raise ValueError("the schema allows none of its options")
            return " | ".join(texts)
        kinds = schema.get("type")
        if kinds is None:
            return self._free(_DEPTH)
        return " | ".join(self._kind(kind, schema) for kind in ([kinds] if isinstance(kinds, str) else kinds))

    def _kind(self, kind: str, schema: Mapping[str, Any]) -> str:
        match kind:
            case "string":
                return string(schema)
            case "integer":
                return integer(schema)
            case "number":
                return number(schema)
            case "boolean":
                return '"true" | "false"'
            case "null":
                return '"null"'
            case "array":
                return self._array(schema)
            case "object":
                return self._object(schema)
        raise ValueError(f"JSON has no type {kind!r}")

    def _array(self, schema: Mapping[str, Any]) -> str:
        items = schema.get("items")
        item = self.value(items) if isinstance(items, Mapping) else self._free(_DEPTH - 1)
        least, most = int(schema.get("minItems", 0)), schema.get("maxItems")
        if most is not None and most < least:
            raise ValueError("no array is as long as the schema asks")
        if most == 0:
            return '"[]"'
        more = f'("," {_SPACE} {item}){{{max(least - 1, 0)},{"" if most is None else most - 1}}}'
        return f'"[" {item} {more} "]"' + ("" if least else ' | "[]"')

    def _object(self, schema: Mapping[str, Any]) -> str:
        required = list(schema.get("required", ()))
        others = schema.get("additionalProperties", True)
        properties = dict(schema.get("properties", {}))
        properties |= {key: others for key in required if key not in properties}
        if any(properties[key] is False for key in required):
            raise ValueError("a required key is not allowed")
        if not properties and others is not False:
            return self._free_object(_DEPTH)
        pairs = [(key, key in required, self.value(inner)) for key, inner in properties.items() if inner is not False]
        return self._pairs(pairs)

    def _pairs(self, pairs: Sequence[tuple[str, bool, str]]) -> str:
        """An object of these (key, required, value rule), in this order."""
        return f'"{{" {self._rest(pairs, first=True)} "}}"'

    def _rest(self, pairs: Sequence[tuple[str, bool, str]], first: bool) -> str:
        if not pairs:
            return ""
        (key, required, value), *rest = pairs
        comma = "" if first else f'"," {_SPACE} '
        pair = f"{comma}{literal(compact_json(key) + ':')} {_SPACE} {value}"
        after = self._rest(rest, first=False)
        if required:
            return f"{pair} {after}"
        if not first:
            return f"({pair})? {after}"
        without = self._rest(rest, first=True)
        return f"({pair} {after} | {without})" if without else f"({pair})?"

    def _free(self, depth: int) -> str:
        """Any value, nested at most so deep."""
        if depth == 0:
            texts, numbers = self._add("any-string", string({})), self._add("any-number", number({}))
            return self._add("any-0", f'{texts} | {numbers} | "true" | "false" | "null"')
        inner = self._free(depth - 1)
        array = f'"[" ({inner} ("," {_SPACE} {inner})*)? "]"'
        return self._add(f"any-{depth}", f"any-0 | {array} | {self._free_object(depth)}")

    def _free_object(self, depth: int) -> str:
        inner = self._free(depth - 1)
        key = self._add("any-string", string({}))
        return self._add(f"any-object-{depth}", f'"{{" ({key} ":" {_SPACE} {inner})? "}}"')
