"""The checksum of weights: equal for equal tensors wherever they lie, another for any difference."""

from __future__ import annotations

import pytest
import torch

from callwright.training.weights.checksum import checksum, tensor_digest, tensor_digests

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int64])
def test_order_and_memory_layout_do_not_matter(dtype: torch.dtype) -> None:
    weight = torch.arange(12, dtype=torch.float32).reshape(3, 4).to(dtype)
    norm = torch.tensor(1.5).to(dtype)
    whole = checksum(tensor_digests({"a": weight, "b": norm}))
    laid_out = weight.t().contiguous().t()
    assert not laid_out.is_contiguous()
    assert checksum(tensor_digests({"b": norm.clone(), "a": laid_out})) == whole


def test_any_difference_matters() -> None:
    weight = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    one_bit = weight.clone()
    one_bit.view(torch.int32)[2, 3] ^= 1
    others = [
        one_bit,
        weight.reshape(4, 3),
        weight.to(torch.float64),
        weight.view(torch.int32),
        weight.flip(0),
    ]
    digests = {tensor_digest(tensor) for tensor in [weight, *others]}
    assert len(digests) == 6
    known = tensor_digests({"a": weight, "b": one_bit})
    swapped = {"a": known["b"], "b": known["a"]}
    assert len({checksum(known), checksum(swapped), checksum({"a": known["a"]})}) == 3
