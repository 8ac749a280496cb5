"""The JSON values that a schema allows, as rules of a decoding grammar.

Invariants: keys stand in declared order, optional ones may be left out, nothing undeclared is written; where
``unenforced`` finds no word, each text of the rules is valid for the schema. A strict free value nests three deep and
its objects have at most one key, because no grammar can see that a key occurs twice; a loose one has no such bounds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from callwright.serving.protocol.grammar_terminals import PLAIN, integer, literal, number, string, string_rules
from callwright.serving.protocol.rendering import marker_safe_json
from callwright.serving.protocol.schema import check
from callwright.serving.protocol.values import compact_json

DEPTH = 3  # of a strict value that the schema leaves free
SPACE = '" "?'
MAX_LENGTH = 1 << 16  # of a string or an array that is counted: a grammar counts by having so many states

_ONE_OF = ("type", "const", "enum", "anyOf", "$ref")
_BOUNDS = {
    *("properties", "required", "additionalProperties", "items", "minItems", "maxItems"),
    *("minLength", "maxLength", "minimum", "maximum"),
}
_NOTES = {
    *("title", "description", "default", "examples", "example", "deprecated", "readOnly", "writeOnly"),
    *("$schema", "$id", "$comment", "$defs", "definitions"),
}
_COUNTS = ("minItems", "maxItems", "minLength", "maxLength")


def unenforced(schema: Any, at: str = "") -> str | None:
    """Where the first word stands that the rules do not hold a text to, or None. References are looked at where they
    lead, for ``$defs`` are schemas as well."""
    if not isinstance(schema, Mapping):
        return None
    kinds = [word for word in _ONE_OF if word in schema]
    alone = {"anyOf", "$ref"}.intersection(kinds)
    for word, value in schema.items():
        known = word in _NOTES or word in _ONE_OF or (word in _BOUNDS and kinds and not alone)
        if not known or (word in alone and len(kinds) > 1) or (word in _COUNTS and value > MAX_LENGTH):
            return f"{at}{word}"
    inner = [
        (f"{word}.{key}", item) for word in ("properties", "$defs", "definitions") for key, item in _pairs(schema, word)
    ]
    inner += [("items", schema.get("items")), ("additionalProperties", schema.get("additionalProperties"))]
    inner += [(f"anyOf.{number}", item) for number, item in enumerate(schema.get("anyOf", ()))]
    return next((found for where, item in inner if (found := unenforced(item, f"{at}{where}."))), None)


def _pairs(schema: Mapping[str, Any], word: str) -> list[tuple[str, Any]]:
    return list(schema.get(word, {}).items())


class Values:
    """Writes rules into ``rules``. ``plain``: no ``<`` stands in a string, so that no marker can; ``loose``: see the
    head."""

    def __init__(self, rules: dict[str, str], *, plain: bool = False, loose: bool = False) -> None:
        self._rules, self._loose = rules, loose
        self._prefix = PLAIN if plain else ""
        self._root: Mapping[str, Any] = {}  # where references lead
        self._documents = 0
        self._references: dict[tuple[int, str], str] = {}  # document and reference to the rule
        rules.update(string_rules(self._prefix))

    def value(self, schema: Any, root: Mapping[str, Any] | None = None) -> str:
        """A rule of the values that the schema allows; its references lead into ``root`` (None: into itself).

        Raises ValueError where there are none.
        """
        self._root = root if root is not None else schema if isinstance(schema, Mapping) else {}
        self._documents += 1
        return self._inner(schema)

    def pairs(self, pairs: Sequence[tuple[str, bool, str]]) -> str:
        """An object of these (key, required, value rule), in this order."""
        return f'"{{" {self._rest(pairs, first=True)} "}}"'

    def any_text(self, schema: Mapping[str, Any]) -> str:
        """A rule of JSON strings."""
        return self.add("any-name", string(schema, self._prefix))

    def free_object(self) -> str:
        """A rule of any object."""
        return self._free_object(DEPTH)

    def add(self, name: str, right: str) -> str:
        """The name of a rule with this right side: a new one only where there is none."""
        name = self._prefix + name
        for known, rule in self._rules.items():
            if rule == right:
                return known
        self._rules[name] = right
        return name

    def _inner(self, schema: Any) -> str:
        if isinstance(schema, Mapping) and "$ref" in schema:
            return self._referred(str(schema["$ref"]))
        right = self._right(schema if isinstance(schema, Mapping) else {})
        return self.add(f"value-{len(self._rules)}", right)

    def _referred(self, reference: str) -> str:
        """The rule of what a reference leads to; it has its name before its right side, so that it may lead back."""
        place = (self._documents, reference)
        if place not in self._references:
            name = self._references[place] = f"{self._prefix}reference-{len(self._references)}"
            self._rules[name] = ""
            self._rules[name] = self._inner(_resolved(self._root, reference))
        return self._references[place]

    def _right(self, schema: Mapping[str, Any]) -> str:
        if "const" in schema or "enum" in schema:
            return self._options(schema)
        if "anyOf" in schema:
            return " | ".join(self._inner(branch) for branch in schema["anyOf"])
        kinds = schema.get("type", "object" if "properties" in schema else None)
        if kinds is None:
            return self._free(DEPTH)
        return " | ".join(self._kind(kind, schema) for kind in ([kinds] if isinstance(kinds, str) else kinds))

    def _options(self, schema: Mapping[str, Any]) -> str:
        options = [schema["const"]] if "const" in schema else schema["enum"]
        allowed = [option for option in options if check(option, schema) is None]
        # Each way of writing the same value.
        ways = (marker_safe_json,) if self._prefix else (compact_json, marker_safe_json, json.dumps)
        texts = list(dict.fromkeys(literal(way(option)) for option in allowed for way in ways))
        if not texts:
            raise ValueError("the schema allows none of its options")
        return " | ".join(texts)

    def _kind(self, kind: str, schema: Mapping[str, Any]) -> str:
        match kind:
            case "string":
                return string(schema, self._prefix)
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
        item = self._inner(items) if isinstance(items, Mapping) else self._free(DEPTH - 1)
        least, most = int(schema.get("minItems", 0)), schema.get("maxItems")
        if most is not None and most < least:
            raise ValueError("no array is as long as the schema asks")
        if most == 0:
            return '"[]"'
        more = f'("," {SPACE} {item}){{{max(least - 1, 0)},{"" if most is None else most - 1}}}'
        return f'"[" {item} {more} "]"' + ("" if least else ' | "[]"')

    def _object(self, schema: Mapping[str, Any]) -> str:
        required = list(schema.get("required", ()))
        others = schema.get("additionalProperties", True)
        properties = dict(schema.get("properties", {}))
        properties |= {key: others for key in required if key not in properties}
        if any(properties[key] is False for key in required):
            raise ValueError("a required key is not allowed")
        if not properties and others is not False:
            return self.free_object()
        pairs = [(key, key in required, self._inner(inner)) for key, inner in properties.items() if inner is not False]
        return self.pairs(pairs)

    def _rest(self, pairs: Sequence[tuple[str, bool, str]], first: bool) -> str:
        if not pairs:
            return ""
        (key, required, value), *rest = pairs
        comma = "" if first else f'"," {SPACE} '
        written = marker_safe_json(key) if self._prefix else compact_json(key)
        pair = f"{comma}{literal(written + ':')} {SPACE} {value}"
        after = self._rest(rest, first=False)
        if required:
            return f"{pair} {after}"
        if not first:
            return f"({pair})? {after}"
        without = self._rest(rest, first=True)
        return f"({pair} {after} | {without})" if without else f"({pair})?"

    def _free(self, depth: int) -> str:
        """Any value; a strict one is nested at most so deep."""
        texts, numbers = self.add("any-string", string({}, self._prefix)), self.add("any-number", number({}))
        flat = self.add("any-flat", f'{texts} | {numbers} | "true" | "false" | "null"')
        if depth == 0:
            return flat
        name = f"{self._prefix}any" if self._loose else f"{self._prefix}any-{depth}"
        if name not in self._rules:
            self._rules[name] = ""  # its name is there before its right side: a loose value holds others of its kind
            inner = name if self._loose else self._free(depth - 1)
            array = f'"[" ({inner} ("," {SPACE} {inner})*)? "]"'
            self._rules[name] = f"{flat} | {array} | {self._free_object(depth)}"
        return name

    def _free_object(self, depth: int) -> str:
        pair = f'{self.add("any-string", string({}, self._prefix))} ":" {SPACE} {self._free(depth - 1)}'
        if self._loose:
            return self.add("any-object", f'"{{" ({pair} ("," {SPACE} {pair})*)? "}}"')
        return self.add(f"any-object-{depth}", f'"{{" ({pair})? "}}"')


def _resolved(root: Mapping[str, Any], reference: str) -> Any:
    """What a reference within the document leads to. Raises ValueError where it leads nowhere."""
    found: Any = root
    start, *steps = reference.split("/")
    for step in steps:
        key = step.replace("~1", "/").replace("~0", "~")
        found = found.get(key) if isinstance(found, Mapping) else None
    if start != "#" or found is None:
        raise ValueError(f"the reference {reference[:64]!r} leads to no schema of this document")
    return found
