"""A target has one rule: a second is refused, in a family and between families; a user's own comes first by value."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from normgauge.instrument.rules import REGISTRY
from normgauge.instrument.rules.flow import Gain, Transfer
from normgauge.instrument.rules.registry import Family, Registry, inherits_forward, printable, spellings


def one(step, incoming, ctx):
    """Nothing is stretched.

    ‖J‖ = 1

    Holds:  everywhere.
    Source: the identity.
    """
    return Transfer((Gain(ctx.full(0.0)),))


def other(step, incoming, ctx):
    return one(step, incoming, ctx)


def family(name, *targets, rule=one):
    made = Family(name)
    made.add(*targets, claim="X.one")(rule)
    return made


@pytest.mark.parametrize("target", [nn.ReLU, F.relu, torch.Tensor.relu], ids=["module", "function", "method"])
def test_a_second_rule_in_a_family_is_refused_and_the_first_one_stays(target):
    made = family("first", nn.Identity, target)
    with pytest.raises(ValueError, match=r"^first\.other: torch\S+[rR]e[lL][uU] has the rule first\.one already$"):
        made.add(target)(other)
    assert made.table[target].function is one


def test_a_target_named_twice_is_refused():
    with pytest.raises(ValueError, match=r"first\.one: torch\.nn\.ReLU has the rule first\.one already"):
        family("first", nn.ReLU, nn.ReLU)


@pytest.mark.parametrize("target", ["relu", None, 3])
def test_what_cannot_be_called_is_no_target(target):
    with pytest.raises(TypeError, match=r"first\.one: expected a module type or a function, got "):
        family("first", target)


def test_two_families_with_one_target_are_refused():
    first, second = family("first", nn.ReLU, F.relu), family("second", nn.GELU, F.relu, rule=other)
    said = r"^torch\.nn\.functional\.relu has two rules: first\.one and second\.other$"
    with pytest.raises(ValueError, match=said):
        Registry.merge(first, second)
    assert {F.relu, nn.ReLU} == set(Registry.merge(first).targets())


def test_a_family_merged_twice_is_refused():
    made = family("first", nn.ReLU)
    with pytest.raises(ValueError, match=r"has two rules: first\.one and first\.one"):
        Registry.merge(made, made)


def test_a_rule_reads_its_docstring():
    (rule,) = Registry.merge(family("first", nn.ReLU, F.relu)).entries()
    assert (rule.id, rule.claim, rule.targets) == (
        "first.one",
        "X.one",
        ("torch.nn.ReLU", "torch.nn.functional.relu"),
    )
    assert (rule.summary, rule.formula) == ("Nothing is stretched.", "‖J‖ = 1")
    assert (rule.holds, rule.source) == ("everywhere.", "the identity.")


def test_a_rule_of_ones_own_takes_the_place_of_the_librarys_in_a_new_registry_and_needs_no_claim():
    before = REGISTRY.lookup(nn.ReLU)
    mine = REGISTRY.extended({nn.ReLU: other})
    found = mine.lookup(nn.ReLU)
    assert found is not None and (found.id, found.claim, found.function) == ("user.other", None, other)
    assert mine.is_own(nn.ReLU) and not mine.is_own(nn.GELU)
    assert REGISTRY.lookup(nn.ReLU) is before and not REGISTRY.is_own(nn.ReLU)


class Same(nn.Linear):
    pass


class Forward(nn.Linear):
    def forward(self, x):
        return super().forward(x)


class Called(nn.Conv2d):
    def _conv_forward(self, x, weight, bias):
        return super()._conv_forward(x, 2 * weight, bias)


class Looked(nn.Linear):
    def __getattr__(self, name):
        return super().__getattr__(name)


def test_a_subclass_has_the_rule_only_with_the_forward():
    assert REGISTRY.lookup(Same) is REGISTRY.lookup(nn.Linear) is not None and REGISTRY.is_leaf(Same)
    for kind in (Forward, Called, Looked, nn.Module):
        assert REGISTRY.lookup(kind) is None and not REGISTRY.is_leaf(kind)


def test_a_forward_that_was_exchanged_is_not_torchs(monkeypatch):
    assert inherits_forward(nn.ReLU, nn.ReLU)
    monkeypatch.setattr(F, "relu", lambda x, inplace=False: 2 * x)
    assert not inherits_forward(nn.ReLU, nn.ReLU)


def test_names_are_printed_as_one_writes_them():
    names = [printable(t) for t in (nn.Linear, F.relu, torch.relu, torch.Tensor.relu, torch.Tensor.T.__get__, Same)]
    assert names == [
        "torch.nn.Linear", "torch.nn.functional.relu", "torch.relu", "torch.Tensor.relu", "torch.Tensor.T",
        f"{__name__}.Same",
    ]  # fmt: skip


def test_spellings_are_found_once_each():
    found = spellings("softmax", "Softmax")
    assert nn.Softmax in found and F.softmax in found and torch.Tensor.softmax in found
    assert len(found) == len(set(found)) and spellings("nothing_like_it") == []
