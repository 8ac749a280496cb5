"""Which Azure CLI commands the model may run, and with which flags: data, nothing else.

Invariants: what is not listed here is refused before the CLI sees it; no listed flag names an account, an endpoint, a
credential or a URL; no listed command changes anything that ``contents.py`` does not read, or hides it from there (a
message that is taken is invisible for a while, so messages are only put, peeked at and cleared).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Takes = Literal["one", "some", "at most one", "none"]
Kind = Literal["text", "file", "name"]


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag by all its names. ``file`` is a path in the scratch folder; ``name`` can be no URL."""

    names: tuple[str, ...]
    takes: Takes = "one"
    kind: Kind = "text"


Flags = tuple[Flag, ...]


def _flag(names: str, takes: Takes = "one", kind: Kind = "text") -> Flag:
    return Flag(tuple(names.split()), takes, kind)


_NAME = _flag("--name -n", kind="name")
_BLOB = _flag("--name -n")
_CONTAINER = _flag("--container-name -c", kind="name")
_FILE = _flag("--file -f", kind="file")
_METADATA = _flag("--metadata", "some")
_PREFIX = _flag("--prefix")
_LIMIT = _flag("--num-results")
_OVERWRITE = _flag("--overwrite", "at most one")
_FAIL = (_flag("--fail-on-exist", "none"), _flag("--fail-not-exist", "none"))
_QUEUE = _flag("--queue-name -q", kind="name")
_TABLE = _flag("--table-name -t", kind="name")
_KEYS = (_flag("--partition-key"), _flag("--row-key"))
_ENTITY = _flag("--entity -e", "some")
_SELECT = _flag("--select", "some")
_COPY = (
    _flag("--destination-container -c", kind="name"),
    _flag("--destination-blob -b"),
    _flag("--source-container", kind="name"),
    _flag("--source-blob"),
)

EVERYWHERE: Flags = (_flag("--output -o"), _flag("--query"), _flag("--only-show-errors", "none"))

STORAGE: Mapping[str, Flags] = {
    "storage container create": (_NAME, _METADATA, _FAIL[0]),
    "storage container delete": (_NAME, _FAIL[1]),
    "storage container exists": (_NAME,),
    "storage container list": (_PREFIX, _LIMIT, _flag("--include-metadata", "at most one")),
    "storage container show": (_NAME,),
    "storage container metadata show": (_NAME,),
    "storage container metadata update": (_NAME, _METADATA),
    "storage blob upload": (_CONTAINER, _BLOB, _flag("--data"), _FILE, _METADATA, _OVERWRITE),
    "storage blob download": (_CONTAINER, _BLOB, _FILE, _OVERWRITE),
    "storage blob list": (_CONTAINER, _PREFIX, _LIMIT, _flag("--include")),
    "storage blob show": (_CONTAINER, _BLOB),
    "storage blob exists": (_CONTAINER, _BLOB),
    "storage blob delete": (_CONTAINER, _BLOB),
    "storage blob delete-batch": (_flag("--source -s", kind="name"), _flag("--pattern")),
    "storage blob copy start": (*_COPY, _METADATA),
    "storage blob metadata show": (_CONTAINER, _BLOB),
    "storage blob metadata update": (_CONTAINER, _BLOB, _METADATA),
    "storage queue create": (_NAME, _METADATA, _FAIL[0]),
    "storage queue delete": (_NAME, _FAIL[1]),
    "storage queue exists": (_NAME,),
    "storage queue list": (_PREFIX, _LIMIT, _flag("--include-metadata", "at most one")),
    "storage queue metadata show": (_NAME,),
    "storage queue metadata update": (_NAME, _METADATA),
    "storage message put": (_QUEUE, _flag("--content")),
    "storage message peek": (_QUEUE, _flag("--num-messages")),
    "storage message clear": (_QUEUE,),
    "storage table create": (_NAME, _FAIL[0]),
    "storage table delete": (_NAME, _FAIL[1]),
    "storage table exists": (_NAME,),
    "storage table list": (_LIMIT,),
    "storage entity insert": (_TABLE, _ENTITY, _flag("--if-exists")),
    "storage entity merge": (_TABLE, _ENTITY),
    "storage entity replace": (_TABLE, _ENTITY),
    "storage entity show": (_TABLE, *_KEYS, _SELECT),
    "storage entity query": (_TABLE, _flag("--filter"), _SELECT, _LIMIT),
    "storage entity delete": (_TABLE, *_KEYS),
}

# What the CLI is told besides, because its output is read by a model.
ADDED: Mapping[str, tuple[str, ...]] = {
    "storage blob upload": ("--no-progress",),
    "storage blob download": ("--no-progress",),
}

_GROUP = _flag("--resource-group -g", kind="name")

# In a real subscription: reading, within one resource group.
LIVE: Mapping[str, Flags] = {
    "group show": (_flag("--resource-group --name -g -n", kind="name"),),
    "resource list": (_GROUP, _flag("--resource-type"), _flag("--tag")),
    "storage account list": (_GROUP,),
    "storage account show": (_GROUP, _NAME),
}
