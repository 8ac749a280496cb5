"""Eight task families about a storage account, each one small deed or question for the Azure CLI.

Invariants: what a row asks about has the names of the world's pools, so that evaluation has its own; the account holds
more than the row is about, so that a careless deed shows; the gold commands are the plan, and what they must leave
behind is computed here without them (the gold check holds the two against each other).
"""

from __future__ import annotations

import shlex
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from callwright.envs.tasks.family import Dials, Draw, Family, Row, Templates
from callwright.envs.tasks.storage import Blob, Storage, StorageGoal
from callwright.envs.tasks.task import Step
from callwright.envs.tasks.world import number, word

DONE = "done"  # the answer of a task that is all deed; any other text does as well
_COLOURS = ("red", "blue", "green")


class AzureDials(Dials):
    """No dials: names follow the world."""


@dataclass(frozen=True, slots=True)
class Draft:
    """What a row is about: the words for the wording, the account before and after, the gold commands. A question has
    an ``answer`` and leaves the account as it is."""

    words: Mapping[str, object]
    before: Storage
    commands: tuple[str, ...]
    after: Storage | None = None
    answer: str = ""
    guesses: tuple[str, ...] = ()


class AzureFamily(Family[AzureDials]):
    """Base of the eight: wordings, and one method that drafts a row."""

    dials_type = AzureDials
    tools = ("azure",)
    templates: ClassVar[Templates]

    @abstractmethod
    def draft(self, draw: Draw) -> Draft:
        """A row without its wording."""

    def row(self, draw: Draw) -> Row:
        draft = self.draft(draw)
        label, text = draw.wording(self.templates)
        return Row(
            question=text.format(**draft.words),
            answer=draft.answer or DONE,
            template=label,
            plan=tuple(Step("azure", {"azure_command": f"az storage {command}"}) for command in draft.commands),
            guesses=draft.guesses,
            grounded=bool(draft.answer),
            scorer="exact" if draft.answer else "any",
            storage=StorageGoal(draft.before, draft.after or draft.before),
        )


def _container(draw: Draw) -> str:
    return f"box-{draw.name().lower()}"


def _blobs(draw: Draw, count: int) -> dict[str, Blob]:
    """Blobs with random names and contents."""
    names: dict[str, Blob] = {}
    while len(names) < count:
        names[f"{word(draw.rng, 5)}.txt"] = Blob(str(number(draw.rng, 4)))
    return names


class Create(AzureFamily):
    """A new container with metadata, beside one that is there."""

    templates = Templates(
        train=(
            "create a container {container} with metadata owner={owner}.",
            "make the container {container}, its metadata is owner={owner}.",
            "a new container {container} with owner={owner} in its metadata.",
        ),
        held=("make a new container {container} with metadata owner={owner}.",),
    )

    def draft(self, draw: Draw) -> Draft:
        container, owner = _container(draw), draw.name()
        before = Storage().with_container("box-0", _blobs(draw, 1))
        return Draft(
            {"container": container, "owner": owner},
            before,
            (f"container create --name {container} --metadata owner={owner}",),
            before.with_container(container, {}, {"owner": owner}),
        )


class Upload(AzureFamily):
    """A text becomes a blob."""

    templates = Templates(
        train=(
            "write the text {text} to the blob {blob} in the container {container}.",
            "in container {container} make a blob {blob} with the text {text}.",
            "upload {text} as the blob {blob} to {container}.",
        ),
        held=("upload the text {text} as blob {blob} in container {container}.",),
    )

    def draft(self, draw: Draw) -> Draft:
        container, blob, text = _container(draw), f"{draw.name()}.txt", word(draw.rng, 6)
        held = _blobs(draw, 2)
        before = Storage().with_container(container, held)
        return Draft(
            {"container": container, "blob": blob, "text": text},
            before,
            (f"blob upload --container-name {container} --name {blob} --data {text}",),
            before.with_container(container, {**held, blob: Blob(text)}),
        )


class SetMetadata(AzureFamily):
    """A blob's metadata, replaced."""

    templates = Templates(
        train=(
            "set the metadata of blob {blob} in container {container} to colour={colour}.",
            "blob {blob} in {container}: its metadata is to be colour={colour}.",
            "the metadata of {blob} in container {container} must be colour={colour}.",
        ),
        held=("the metadata of blob {blob} in container {container} is to be colour={colour}.",),
    )

    def draft(self, draw: Draw) -> Draft:
        container, blob, colour = _container(draw), f"{draw.name()}.txt", draw.rng.choice(_COLOURS)
        held = {**_blobs(draw, 2), blob: Blob(str(number(draw.rng, 4)), {"old": "yes"})}
        before = Storage().with_container(container, held)
        return Draft(
            {"container": container, "blob": blob, "colour": colour},
            before,
            (f"blob metadata update --container-name {container} --name {blob} --metadata colour={colour}",),
            before.with_container(container, {**held, blob: replace(held[blob], metadata={"colour": colour})}),
        )


class Move(AzureFamily):
    """A blob goes to another container: copied, then deleted."""

    templates = Templates(
        train=(
            "move the blob {blob} from container {source} to container {target}.",
            "blob {blob} in {source} must go to {target}, and be in {source} no more.",
            "from the container {source} move {blob} to {target}.",
        ),
        held=("move blob {blob} from {source} to the container {target}.",),
    )

    def draft(self, draw: Draw) -> Draft:
        source, blob, held = _container(draw), f"{draw.name()}.txt", _blobs(draw, 2)
        target, moved = f"{source}-new", Blob(str(number(draw.rng, 4)), {"colour": draw.rng.choice(_COLOURS)})
        there = _blobs(draw, 1)
        before = Storage().with_container(source, {**held, blob: moved}).with_container(target, there)
        copy = f"--source-container {source} --source-blob {blob}"
        return Draft(
            {"source": source, "target": target, "blob": blob},
            before,
            (
                f"blob copy start {copy} --destination-container {target} --destination-blob {blob}",
                f"blob delete --container-name {source} --name {blob}",
            ),
            before.with_container(source, held).with_container(target, {**there, blob: moved}),
        )


class DeletePrefix(AzureFamily):
    """Some blobs of a container go, the others stay."""

    templates = Templates(
        train=(
            "delete every blob in container {container} whose name begins with {prefix}.",
            "in {container} delete the blobs that begin with {prefix}.",
            "all blobs whose name begins with {prefix} must go from the container {container}.",
        ),
        held=("delete all blobs in the container {container} whose name begins with {prefix}.",),
    )

    def draft(self, draw: Draw) -> Draft:
        container, prefix = _container(draw), f"{draw.name()}-"
        kept = {f"A{name}": blob for name, blob in _blobs(draw, 2).items()}  # no name of the world has an A
        gone = {f"{prefix}{name}": blob for name, blob in _blobs(draw, draw.rng.randrange(2, 5)).items()}
        before = Storage().with_container(container, {**kept, **gone})
        pattern = shlex.quote(f"{prefix}*")
        return Draft(
            {"container": container, "prefix": prefix},
            before,
            (f"blob delete-batch --source {container} --pattern {pattern}",),
            before.with_container(container, kept),
        )


class Count(AzureFamily):
    """How many blobs have some metadata; the account stays as it is."""

    templates = Templates(
        train=(
            "how many blobs in container {container} have the metadata colour={colour}?",
            "count the blobs with metadata colour={colour} in {container}.",
            "in the container {container}, how many blobs are colour={colour}?",
        ),
        held=("count the blobs in container {container} with the metadata colour={colour}.",),
    )

    def draft(self, draw: Draw) -> Draft:
        container, colour = _container(draw), draw.rng.choice(_COLOURS)
        wanted, others = draw.rng.randrange(10, 20), draw.rng.randrange(1, 5)
        other = next(each for each in _COLOURS if each != colour)
        blobs = {
            name: replace(blob, metadata={"colour": colour if index < wanted else other})
            for index, (name, blob) in enumerate(_blobs(draw, wanted + others).items())
        }
        query = shlex.quote(f"length([?metadata.colour=='{colour}'])")
        return Draft(
            {"container": container, "colour": colour},
            Storage().with_container(container, blobs),
            (f"blob list --container-name {container} --include m --query {query} --output tsv",),
            answer=str(wanted),
            guesses=(str(wanted + others), str(wanted + 1)),
        )


class Message(AzureFamily):
    """One more message on a queue."""

    templates = Templates(
        train=(
            "put the message {text} on the queue {queue}.",
            "queue {queue} is to get the message {text}.",
            "on the queue {queue} put {text}.",
        ),
        held=("put message {text} on queue {queue}.",),
    )

    def draft(self, draw: Draw) -> Draft:
        queue, text = f"line-{draw.name().lower()}", word(draw.rng, 6)
        held = tuple(word(draw.rng, 5) for _ in range(draw.rng.randrange(1, 4)))
        before = Storage(queues={queue: held, "line-0": held[:1]})
        return Draft(
            {"queue": queue, "text": text},
            before,
            (f"message put --queue-name {queue} --content {text}",),
            replace(before, queues={**before.queues, queue: (*held, text)}),
        )


class Entity(AzureFamily):
    """One property of one row of a table, the others kept."""

    templates = Templates(
        train=(
            "in the table {table} set Stock to {stock} for the row {row} of partition {partition}.",
            "table {table}, partition {partition}, row {row}: set Stock to {stock}.",
            "set the Stock of row {row} in partition {partition} of table {table} to {stock}.",
        ),
        held=("set Stock to {stock} for row {row} of partition {partition} in the table {table}.",),
    )

    def draft(self, draw: Draw) -> Draft:
        table, row, partition = f"T{draw.name()}", draw.name(), word(draw.rng, 3)
        stock = number(draw.rng, 3)
        keys = {"PartitionKey": partition, "RowKey": row}
        old: dict[str, str | int] = {**keys, "Colour": draw.rng.choice(_COLOURS), "Stock": number(draw.rng, 2)}
        other: dict[str, str | int] = {**keys, "RowKey": f"A{row}", "Stock": number(draw.rng, 2)}
        before = Storage(tables={table: (old, other)})
        change = f"PartitionKey={partition} RowKey={row} Stock={stock}"
        return Draft(
            {"table": table, "row": row, "partition": partition, "stock": stock},
            before,
            (f"entity merge --table-name {table} --entity {change}",),
            replace(before, tables={table: ({**old, "Stock": stock}, other)}),
        )


AZURE_FAMILIES: Mapping[str, type[AzureFamily]] = {
    "azure_create": Create,
    "azure_upload": Upload,
    "azure_metadata": SetMetadata,
    "azure_move": Move,
    "azure_delete": DeletePrefix,
    "azure_count": Count,
    "azure_message": Message,
    "azure_entity": Entity,
}
