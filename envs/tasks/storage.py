"""What a storage account holds, as a value: how a task begins, and how it should end.

Invariants: a value is written out once as a seed (to fill an account) and once as a snapshot (to compare with what an
account is said to hold); two contents are equal exactly where their snapshots are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

Metadata = Mapping[str, str]
Entity = Mapping[str, str | int]
"""One row of a table, ``PartitionKey`` and ``RowKey`` among its properties."""


@dataclass(frozen=True, slots=True)
class Blob:
    """A text under a name."""

    content: str
    metadata: Metadata = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Container:
    """Blobs by name."""

    blobs: Mapping[str, Blob] = field(default_factory=dict)
    metadata: Metadata = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Storage:
    """A whole account. Queues hold texts, oldest first."""

    containers: Mapping[str, Container] = field(default_factory=dict)
    queues: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    tables: Mapping[str, tuple[Entity, ...]] = field(default_factory=dict)

    def seed(self) -> str:
        """What fills an empty account, as JSON."""
        containers = {
            name: {
                "metadata": dict(container.metadata),
                "blobs": {
                    key: {"content": blob.content, "metadata": dict(blob.metadata)}
                    for key, blob in container.blobs.items()
                },
            }
            for name, container in self.containers.items()
        }
        tables = {name: list(map(dict, entities)) for name, entities in self.tables.items()}
        return json.dumps({"containers": containers, "queues": dict(self.queues), "tables": tables})

    def snapshot(self) -> dict[str, Any]:
        """What an account that holds this is read as: contents by their hash, entities by their keys."""
        containers = {
            name: {
                "metadata": dict(container.metadata),
                "blobs": {
                    key: {
                        "sha256": hashlib.sha256(blob.content.encode()).hexdigest(),
                        "metadata": dict(blob.metadata),
                    }
                    for key, blob in container.blobs.items()
                },
            }
            for name, container in self.containers.items()
        }
        queues = {
            name: {"metadata": {}, "count": len(texts), "messages": list(texts)} for name, texts in self.queues.items()
        }
        tables = {
            name: sorted(map(dict, entities), key=lambda entity: (entity["PartitionKey"], entity["RowKey"]))
            for name, entities in self.tables.items()
        }
        return {"containers": containers, "queues": queues, "tables": tables}

    def with_container(self, name: str, blobs: Mapping[str, Blob], metadata: Metadata | None = None) -> Storage:
        """This account with one container more, or another in the place of the one of that name."""
        return replace(self, containers={**self.containers, name: Container(blobs, metadata or {})})


@dataclass(frozen=True, slots=True)
class StorageGoal:
    """What a task's account holds before, and must hold after. Anything else, however little, is wrong."""

    before: Storage
    after: Storage
