"""All that an account of the emulator holds, written in one go and read in one go, with the CLI's own SDKs.

Runs in a child of the zygote, which loads this file by its path; the account is that of the child's environment.

Invariant: ``read`` tells everything that a listed command can change (names, metadata, contents, messages in order,
entities), in a form that is equal exactly where the contents are; nothing that depends on when or how it was written
(times, etags, content types guessed from a name).
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any

MOST_MESSAGES = 32  # what can be peeked at


def clients() -> tuple[Any, Any, Any]:
    """The account's blob, queue and table services."""
    from azure.data.tables import TableServiceClient
    from azure.storage.blob import BlobServiceClient
    from azure.storage.queue import QueueServiceClient

    where = os.environ["AZURE_STORAGE_CONNECTION_STRING"]
    return tuple(
        kind.from_connection_string(where) for kind in (BlobServiceClient, QueueServiceClient, TableServiceClient)
    )


def fill(text: str) -> None:
    """Put into an empty account what ``text`` says, in the form of ``Storage.seed``."""
    blobs, queues, tables = clients()
    wanted = json.loads(text)
    for name, container in wanted["containers"].items():
        made = blobs.create_container(name, metadata=container["metadata"])
        for blob, what in container["blobs"].items():
            made.upload_blob(blob, what["content"].encode(), metadata=what["metadata"])
    for name, messages in wanted["queues"].items():
        queue = queues.create_queue(name)
        for message in messages:
            queue.send_message(message)
    for name, entities in wanted["tables"].items():
        table = tables.create_table(name)
        for entity in entities:
            table.create_entity(entity)


def read() -> None:
    """Print what the account holds, in the form of ``Storage.snapshot``."""
    blobs, queues, tables = clients()
    held = {
        "containers": {
            container.name: {
                "metadata": container.metadata or {},
                "blobs": _blobs(blobs.get_container_client(container.name)),
            }
            for container in blobs.list_containers(include_metadata=True)
        },
        "queues": {queue.name: _messages(queues.get_queue_client(queue.name)) for queue in queues.list_queues()},
        "tables": {table.name: _entities(tables.get_table_client(table.name)) for table in tables.list_tables()},
    }
    print(json.dumps(held, sort_keys=True))


def _blobs(container: Any) -> dict[str, Any]:
    return {
        blob.name: {
            "sha256": hashlib.sha256(container.download_blob(blob.name).readall()).hexdigest(),
            "metadata": blob.metadata or {},
        }
        for blob in container.list_blobs(include=["metadata"])
    }


def _messages(queue: Any) -> dict[str, Any]:
    properties = queue.get_queue_properties()
    return {
        "metadata": properties.metadata or {},
        "count": properties.approximate_message_count,
        "messages": [message.content for message in queue.peek_messages(max_messages=MOST_MESSAGES)],
    }


def _entities(table: Any) -> list[dict[str, Any]]:
    found = [{name: _plain(value) for name, value in entity.items()} for entity in table.list_entities()]
    return sorted(found, key=lambda entity: (entity["PartitionKey"], entity["RowKey"]))


def _plain(value: Any) -> Any:
    """A JSON value; 64-bit integers and the like come as (value, type)."""
    value = getattr(value, "value", value)
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)
