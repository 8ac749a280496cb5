"""What a training step holds in memory, from the model's shape: arithmetic on paper, in bytes.

Invariants: imports without torch, touches no device and fetches nothing; each function states its formula and where it
is from. Counted is what grows with the model and the batch. A framework's own buffers and fragmentation come on top.
"""

from __future__ import annotations

from dataclasses import dataclass

from callwright.training.model_shape import Shape

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
LOGITS_TILE = 2**27  # TRL's chunked function, which the packed pass uses
ADAPTER_BYTES = 4  # PEFT keeps adapters in float32 beside a base of half precision


@dataclass(frozen=True, slots=True)
class Load:
    """What a step works on: rows of one forward and backward pass and the tokens of each, at most; the cache's places.

    ``width`` is the bytes of a weight. ``rank`` and ``targets`` are those of LoRA, None and () without it.
    """

    rows: int
    tokens: int
    cached_tokens: int
    width: int
    rank: int | None = None
    targets: tuple[str, ...] = ()
    checkpointing: bool = False
    reference: bool = False


def weights(parameters: int, load: Load) -> int:
    """Parameters times bytes; twice where a KL term needs a reference model of its own (an adapter needs none)."""
    return parameters * load.width * (2 if load.reference and load.rank is None else 1)


def gradients(trained: int, load: Load) -> int:
    """One number a trained parameter, as wide as it is (Rajbhandari et al. 2020, ZeRO, section 3.1)."""
    return trained * _trained_width(load)


def optimizer(trained: int, load: Load) -> int:
    """Adam's two moments of each trained parameter (Kingma and Ba 2015, algorithm 1), as wide as it is: torch's AdamW
    keeps no float32 copy beside weights of half precision, which would be 4 bytes more (ZeRO, section 3.1)."""
    return 2 * trained * _trained_width(load)


def activations(shape: Shape, load: Load) -> int:
    """What the forward pass keeps for the backward pass of one micro-batch.

    Counted as Korthikanti et al. 2022 (Reducing Activation Recomputation, section 4.1) count, for gated layers without
    dropout and attention that keeps no tokens x tokens matrix (Dao et al. 2022): a token and layer, the inputs and
    outputs of two norms, 4 h; queries, keys, values and attention's output, 2 (heads + kv heads) d; the gate, its
    activation, the other half and their product, 4 i. With checkpointing, h a layer and one layer in full.
    """
    heads, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    layer = 4 * shape.hidden + 2 * (heads + kv) + 4 * shape.intermediate
    a_token = shape.layers * shape.hidden + layer if load.checkpointing else shape.layers * layer
    return load.rows * load.tokens * a_token * load.width


def logits(shape: Shape, load: Load) -> int:
    """The scores of the tokens and their gradient, in float32: 2 x 4 bytes x rows x tokens x vocabulary, no more than a
    tile of them at once (``update/logprobs.py``; a model that cannot be packed has them all)."""
    return 2 * 4 * min(load.rows * load.tokens * shape.vocabulary, LOGITS_TILE)


def cache(shape: Shape, load: Load) -> int:
    """Keys and values: 2 x layers x kv heads x d a token (Kwon et al. 2023, PagedAttention, section 3)."""
    return 2 * shape.layers * shape.kv_heads * shape.head_dim * load.cached_tokens * load.width


def trained_parameters(parameters: int | None, shape: Shape | None, load: Load) -> int | None:
    """All of them; with LoRA r (in + out) of each adapted matrix (Hu et al. 2022, section 4.1). None: not known."""
    if load.rank is None:
        return parameters
    if shape is None:
        return None
    chosen = (
        shape.matrices if load.targets == ("all-linear",) else {name: shape.matrices[name] for name in load.targets}
    )
    return shape.layers * sum(load.rank * (into + out) for into, out in chosen.values())


def _trained_width(load: Load) -> int:
    return load.width if load.rank is None else ADAPTER_BYTES
