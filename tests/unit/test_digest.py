"""Digests of weights: alike where layouts differ, unlike where one bit does."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from callwright.serving.engines.digest import checksum, fused, tensor_digest

pytestmark = pytest.mark.unit

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
tensors = st.builds(
    lambda seed, rows, columns, dtype: torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)).to(
        dtype
    ),
    st.integers(0, 2**31),
    st.integers(1, 9),
    st.integers(1, 9),
    st.sampled_from(DTYPES),
)


@given(tensor=tensors, cut=st.integers(0, 9))
def test_a_layout_does_not_change_it(tensor: torch.Tensor, cut: int) -> None:
    digest = tensor_digest(tensor)
    assert tensor_digest(tensor.t()) == digest
    assert tensor_digest(torch.nn.functional.pad(tensor, (0, 3))) == digest
    shards = (tensor_digest(tensor[:cut]) + tensor_digest(tensor[cut:])) % 2**64
    assert shards == digest


@given(tensor=tensors, data=st.data())
def test_one_bit_changes_it(tensor: torch.Tensor, data: st.DataObject) -> None:
    words = torch.int32 if tensor.element_size() == 4 else torch.int16
    at = data.draw(st.integers(0, tensor.numel() - 1))
    bit = data.draw(st.integers(0, 8 * tensor.element_size() - 2))
    other = tensor.clone()
    other.view(-1).view(words)[at] ^= 1 << bit
    assert tensor_digest(other) != tensor_digest(tensor)


def test_it_is_the_same_however_large_the_pieces_are(monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    whole = tensor_digest(tensor)
    monkeypatch.setattr("callwright.serving.engines.digest._CHUNK", 7)
    assert tensor_digest(tensor) == whole


def test_splitmix_is_the_published_one() -> None:
    """A number from its authors' own code: the first output for the seed 1234567, whose state is then the seed plus
    the golden gamma."""
    state = (1234567 + 0x9E3779B97F4A7C15) % 2**64
    signed = state - 2**64 if state >= 2**63 else state
    assert tensor_digest(torch.tensor([signed])) == 6457827717110365317


@given(parts=st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(0, 2**64 - 1), min_size=1))
def test_a_checksum_is_of_names_and_digests_whatever_their_order(parts: dict[str, int]) -> None:
    assert checksum(dict(reversed(parts.items()))) == checksum(parts)
    name = next(iter(parts))
    assert checksum({**parts, name: parts[name] ^ 1}) != checksum(parts)
    assert checksum({f"{name}x" if key == name else key: value for key, value in parts.items()}) != checksum(parts)


def test_what_a_server_fuses_is_the_sum_of_its_parts() -> None:
    packed = {"qkv_proj": ["q_proj", "k_proj", "v_proj"]}
    digests = {f"layers.0.{part}.weight": 2**63 + number for number, part in enumerate(packed["qkv_proj"])}
    assert fused(digests, "layers.0.qkv_proj.weight", packed) == (3 * 2**63 + 3) % 2**64
    assert fused(digests, "layers.0.q_proj.weight", packed) == 2**63
    assert fused({"layers.0.v_proj.weight": 7}, "layers.0.qkv_proj.weight", packed) == 7
    assert fused(digests, "layers.1.qkv_proj.weight", packed) is None
    assert fused(digests, "layers.0.rotary.cache", packed) is None
