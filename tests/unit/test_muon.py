"""The optimizer of the warm start: an orthogonal update for matrices, AdamW for the rest."""

from __future__ import annotations

import copy

import pytest
import torch

from callwright.training.muon import MuonAdamW

pytestmark = pytest.mark.unit


class Model(torch.nn.Module):
    def __init__(self, rows: int = 24, columns: int = 16) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(10, columns)
        self.hidden = torch.nn.Linear(columns, rows)
        self.head = torch.nn.Linear(rows, 10)


def with_gradients(model: Model, seed: int = 0) -> Model:
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)
    return model


@pytest.mark.parametrize(("rows", "columns"), [(24, 16), (16, 24), (20, 20), (1, 8)])
def test_the_update_of_a_matrix_is_about_orthogonal(rows: int, columns: int) -> None:
    model = with_gradients(Model(rows, columns))
    before = model.hidden.weight.detach().clone()
    MuonAdamW(model, muon_lr=0.1, lr=0.0).step()
    update = (before - model.hidden.weight.detach()) / (0.1 * 0.2 * max(rows, columns) ** 0.5)
    # Five steps with these coefficients bring singular values near 1, not to it.
    values = torch.linalg.svdvals(update)
    assert values.max() < 1.35
    assert values.median() > 0.6
    gradient = model.hidden.weight.grad
    assert gradient is not None
    assert float((update * gradient).sum()) > 0
    u, _, v = torch.linalg.svd(gradient, full_matrices=False)
    assert torch.nn.functional.cosine_similarity(update.flatten(), (u @ v).flatten(), dim=0) > 0.9


def test_the_rest_follows_adamw_without_decay() -> None:
    ours, theirs = with_gradients(Model()), with_gradients(Model())
    theirs.load_state_dict(ours.state_dict())
    muon = MuonAdamW(ours, muon_lr=0.0, lr=0.01)
    names = ("embed.weight", "hidden.bias", "head.weight", "head.bias")
    adamw = torch.optim.AdamW(
        [dict(theirs.named_parameters())[name] for name in names],
        lr=0.01,
        betas=(0.9, 0.95),
        eps=1e-8,
        weight_decay=0.0,
    )
    for step in range(4):
        for model, optimizer in ((ours, muon), (theirs, adamw)):
            with_gradients(model, seed=step)
            optimizer.step()
    for name in names:
        want, got = dict(theirs.named_parameters())[name], dict(ours.named_parameters())[name]
        assert torch.allclose(want, got, atol=1e-6), name


def test_it_learns_and_its_state_survives_a_save() -> None:
    torch.manual_seed(0)
    model = Model()
    x, y = torch.randint(10, (64,)), torch.randint(10, (64,))

    def loss_of(net: Model) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(net.head(net.hidden(net.embed(x)).relu()), y)

    optimizer = MuonAdamW(model, muon_lr=0.02, lr=0.02)

    def go(net: Model, by: MuonAdamW, steps: int) -> float:
        for _ in range(steps):
            by.zero_grad()
            loss = loss_of(net)
            loss.backward()
            by.step()
        return float(loss_of(net).detach())

    first = float(loss_of(model).detach())
    assert go(model, optimizer, 10) < first
    twin = copy.deepcopy(model)
    resumed = MuonAdamW(twin, muon_lr=0.02, lr=0.02)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert go(model, optimizer, 5) == go(twin, resumed, 5)


def test_frozen_and_unused_parameters_stay() -> None:
    model = with_gradients(Model())
    model.hidden.weight.requires_grad_(False)
    model.head.weight.grad = None
    before = copy.deepcopy(model.state_dict())
    MuonAdamW(model, muon_lr=0.1, lr=0.1).step()
    after = model.state_dict()
    assert torch.equal(before["hidden.weight"], after["hidden.weight"])
    assert torch.equal(before["head.weight"], after["head.weight"])
    assert not torch.equal(before["head.bias"], after["head.bias"])
