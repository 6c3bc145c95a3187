"""What-if questions: the numbers are those of a network changed by hand, and the user's network is left alone."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import normgauge as ng
from normgauge.advice.whatif import WhatIf
from normgauge.advice.whatif.exchange import swapped_modules
from normgauge.advice.whatif.fresh import group_count
from normgauge.core.errors import ReadingError
from normgauge.lab.zoo import mlp


class Net(nn.Module):
    """A bit of everything: normalizers as modules and as functions, one that runs twice, one under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.bn = nn.BatchNorm1d(8)
        self.ln = nn.LayerNorm(8)
        self.again = self.ln
        self.last = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.ln(torch.relu(self.bn(self.first(x))))
        h = self.again(torch.relu(h) + 1)
        return self.last(F.layer_norm(h, (8,)))


class Hidden(nn.Module):
    """Reaches its normalizer through a plain list."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.kept = [self.norm]

    def forward(self, x: Tensor) -> Tensor:
        return self.kept[0](x)


@pytest.fixture
def batch() -> Tensor:
    return torch.randn(6, 6, generator=torch.Generator().manual_seed(1))


def built(seed: int = 0) -> Net:
    torch.manual_seed(seed)
    net = Net()
    net.bn.running_var.uniform_(0.2, 3.0)
    net.bn.running_mean.normal_()
    return net.eval()


def ask(model: nn.Module, batch: Tensor, scope: str = "point", **options: object) -> WhatIf:
    return ng.what_if(model, batch, scope=scope, search=False, balance=False, **options)


@pytest.mark.parametrize("scope", ["point", "ball:0.01", "global"])
def test_without_is_the_reading_of_the_network_with_an_identity_there(batch, scope):
    net = built()
    asked = ask(net, batch, scope).without("bn").reading
    by_hand = copy.deepcopy(net)
    by_hand.bn = nn.Identity()
    expected = ask(by_hand, batch, scope).reading
    assert asked.log_upper == pytest.approx(expected.log_upper, abs=1e-9)
    assert asked.log_lower == pytest.approx(expected.log_lower, abs=1e-9)
    assert asked.scope == expected.scope
    assert asked.notes[0] == "what if: bn (BatchNorm1d) is replaced by the identity, all weights as they are"


def test_a_batch_normalizer_gets_the_statistics_of_the_batch(batch):
    net = built()
    asked = ask(net, batch).with_norm("first", "batch").reading
    by_hand = copy.deepcopy(net)
    fresh = nn.BatchNorm1d(8)
    with torch.no_grad():
        values = net.first(batch)
        fresh.running_mean.copy_(values.mean(0))
        fresh.running_var.copy_(values.var(0, correction=0))
    by_hand.bn = nn.Sequential(fresh.eval(), net.bn)
    assert asked.log_upper == pytest.approx(ask(by_hand, batch).reading.log_upper, abs=1e-6)
    assert "with the statistics of the batch behind first" in asked.notes[0]
    assert asked.layer("first.norm").kind == "BatchNorm1d"


@pytest.mark.parametrize(("kind", "made_of"), [("layer", "LayerNorm"), ("group", "GroupNorm"), ("rms", "RMSNorm")])
def test_a_normalizer_is_exchanged_in_its_place(batch, kind, made_of):
    asked = ask(built(), batch).with_norm("bn", kind).reading
    assert asked.layer("bn").kind == made_of
    assert f"a fresh {made_of}" in asked.notes[0] and "in the place of bn (BatchNorm1d)" in asked.notes[0]


@pytest.mark.parametrize("kind", ["batch", "layer", "group", "instance", "rms"])
def test_images_take_every_kind(kind):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(2, 6, 3), nn.ReLU(), nn.Conv2d(6, 4, 3), nn.Flatten(), nn.Linear(16, 3)).eval()
    whole = ask(net, torch.randn(4, 2, 6, 6))
    asked = whole.with_norm("0", kind, groups=3 if kind == "group" else None).reading
    assert asked.log_upper != pytest.approx(whole.reading.log_upper, abs=1e-6)
    assert any(layer.name.startswith("0.norm") for layer in asked.layers)


def test_tokens_and_other_shapes():
    torch.manual_seed(0)
    tokens = ask(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2)), torch.randn(3, 5, 4))
    assert tokens.with_norm("0", "rms").reading.layer("0.norm").kind == "RMSNorm"
    with pytest.raises(ReadingError, match="lie on the last axis; use kind layer or rms"):
        tokens.with_norm("0", "batch")
    line = ask(nn.Sequential(nn.Conv1d(2, 4, 3), nn.Flatten(), nn.Linear(16, 2)), torch.randn(3, 2, 6))
    assert line.with_norm("0", "batch").reading.layer("0.norm").kind == "BatchNorm1d"
    with pytest.raises(ReadingError, match="kind rms needs vectors, tokens or images"):
        line.with_norm("0", "rms")
    whole = line.with_norm("1", "layer").reading  # behind the Flatten
    assert whole.layer("1.norm").kind == "LayerNorm"


def test_questions_about_answers_add_up(batch):
    first = ask(built(), batch).without("bn")
    second = first.with_norm("first", "layer").reading
    assert [note.partition(":")[0] for note in second.notes[:2]] == ["what if", "what if"]
    assert second.layer("first.norm").kind == "LayerNorm" and "bn" not in [r.name for r in second.layers]


def test_a_module_under_two_names_is_changed_at_the_one_named(batch):
    asked = ask(built(), batch)
    assert "(in 1 of its 2 runs)" in asked.without("ln").reading.notes[0]
    assert "ln#2" in [r.name for r in asked.reading.layers]
    with pytest.raises(ReadingError, match="another run of ln: a module is exchanged in all its runs"):
        asked.without("ln#2")


def test_a_block_may_be_followed_too(batch):
    torch.manual_seed(0)
    net = mlp((6, 8, 8, 3)).eval()
    asked = ask(net, batch).with_norm("layers.0", "layer").reading
    assert asked.layer("layers.0.norm").kind == "LayerNorm"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("first", "first is a Linear and no normalizer; its normalizers are bn, ln"),
        ("nowhere", "no layer 'nowhere' in this network; its normalizers are bn, ln"),
        ("layer_norm", "a call of the function layer_norm and no module"),
    ],
)
def test_what_is_no_normalizer_is_refused(batch, name, message):
    with pytest.raises(ReadingError, match=message):
        ask(built(), batch).without(name)


@pytest.mark.parametrize(
    ("kind", "groups", "message"),
    [
        ("none", None, "expected one of batch, layer, group, instance, rms"),
        ("group", 3, "8 channels do not divide into 3 groups"),
        ("layer", 2, "groups belongs to kind 'group'"),
        ("instance", None, "one number a channel"),
    ],
)
def test_a_normalizer_that_does_not_fit_is_refused(batch, kind, groups, message):
    with pytest.raises(ReadingError, match=message):
        ask(built(), batch).with_norm("first", kind, groups=groups)


def test_one_sample_has_no_variance(batch):
    with pytest.raises(ReadingError, match="one value a channel has no variance"):
        ask(built(), batch[:1]).with_norm("first", "batch")


def test_a_network_that_is_a_normalizer_and_one_that_hides_it():
    alone = ask(nn.LayerNorm(4), torch.randn(3, 4))
    with pytest.raises(ReadingError, match="the whole network"):
        alone.without("LayerNorm")
    with pytest.raises(ReadingError, match="by another way than its path"):
        ask(Hidden(), torch.randn(3, 4)).without("norm")


def changed_weight(net: Net, batch: Tensor) -> None:
    with torch.no_grad():
        net.last.weight[0, 0] += 1


def changed_data(net: Net, batch: Tensor) -> None:
    net.last.weight.data[0, 0] += 1  # the version counter does not see this


def changed_statistics(net: Net, batch: Tensor) -> None:
    net.train()(batch)


def changed_layer(net: Net, batch: Tensor) -> None:
    net.last = nn.Linear(8, 3)


def changed_batch(net: Net, batch: Tensor) -> None:
    batch.mul_(2)


@pytest.mark.parametrize("change", [changed_weight, changed_data, changed_statistics, changed_layer, changed_batch])
def test_a_changed_network_is_refused(batch, change):
    net = built()
    asked = ask(net, batch)
    change(net, batch)
    with pytest.raises(ReadingError, match="has changed since this reading was made"):
        asked.without("bn")


CALLS: list[int] = []


def test_the_network_is_untouched_also_after_an_error(batch):
    net = built().train()
    calls = CALLS  # of the module's own: what a hook closes over is put back

    def seen(*_: object) -> None:
        CALLS.append(1)

    net.bn.register_forward_hook(seen)
    before = dict(net.named_modules(remove_duplicate=False)), net.state_dict(), [m.training for m in net.modules()]
    asked = ask(net, batch)
    count = len(calls)
    asked.without("bn")
    assert len(calls) > count  # the user's hook still runs on what stands in its place
    asked.with_norm("first", "batch")
    with pytest.raises(ReadingError):
        asked.with_norm("first", "instance")
    with pytest.raises(RuntimeError, match="stop"), swapped_modules(net, ()):
        raise RuntimeError("stop")
    after = dict(net.named_modules(remove_duplicate=False)), net.state_dict(), [m.training for m in net.modules()]
    assert before[0].keys() == after[0].keys() and all(before[0][k] is after[0][k] for k in before[0])
    assert all(torch.equal(before[1][k], after[1][k]) for k in before[1]) and before[2] == after[2]
    assert list(net.bn._forward_hooks.values()) == [seen] and not net.first._forward_hooks


def test_train_mode_is_asked_in_train_mode(batch):
    net = built()
    assert ask(net, batch, mode="train").without("bn").reading.mode == "train"


def test_groups_are_chosen_so_that_three_entries_are_left():
    assert [group_count(c, None) for c in (64, 8, 12, 7, 2)] == [8, 2, 4, 1, 1]
    assert group_count(12, 6) == 6


class Masked(nn.Module):
    """Buffers of kinds that are no plain numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(6)
        self.register_buffer("mask", torch.tensor([True, False] * 3))
        self.register_buffer("phase", torch.ones(2, dtype=torch.complex64))
        self.register_buffer("none", torch.zeros(0, dtype=torch.int8))

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x) * self.mask


def test_masks_and_complex_numbers_are_remembered_too(batch):
    model = Masked()
    asked = ask(model, batch)
    assert asked.without("norm").reading.log10_lower == pytest.approx(0.0, abs=1e-6)
    model.mask[0] = False
    with pytest.raises(ReadingError, match="changed since"):
        asked.without("norm")
