"""What-if questions: the numbers are those of a network changed by hand, and the user's network is left alone."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from normgauge.core.errors import ReadingError
from normgauge.lab.zoo import mlp
from tests.advice.whatif.nets import Net, ask, built


class Hidden(nn.Module):
    """Reaches its normalizer through a plain list."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.kept = [self.norm]

    def forward(self, x: Tensor) -> Tensor:
        return self.kept[0](x)


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


def test_train_mode_is_asked_in_train_mode(batch):
    net = built()
    assert ask(net, batch, mode="train").without("bn").reading.mode == "train"


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
