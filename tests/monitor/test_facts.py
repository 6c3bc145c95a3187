"""What is known of a training without measuring it."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from normgauge.monitor.facts import Passes, facts_of
from normgauge.monitor.layers import find_layers


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8, momentum=0.3), nn.Sigmoid(), nn.Linear(8, 3))


@pytest.mark.parametrize(
    ("loss", "reduction", "classes"),
    [
        (lambda out, y: functional.cross_entropy(out, y, reduction="sum"), "sum", 3),
        (lambda out, y: functional.cross_entropy(out, y), "mean", 3),
        (lambda out, y: functional.mse_loss(out, out.detach() + 1, reduction="sum"), "sum", 0),
        (lambda out, y: (out - 1).square().sum(), "sum", 0),
        (lambda out, y: functional.cross_entropy(out, y, reduction="sum") / 64, "", 3),
        (lambda out, y: out.square().sum() + functional.cross_entropy(out, y), "", 3),  # both, so neither
        (lambda out, y: functional.mse_loss(out, out.detach() + 1, reduction="sum") + 0.1 * out.mean(), "sum", 0),
    ],
)
def test_the_reduction_is_read_from_the_graph_of_the_loss(loss, reduction, classes):
    model, passes = network(), Passes()
    out = model(torch.randn(64, 4))
    passes.leave(model, out)
    made = loss(out, torch.randint(3, (64,)))
    made.backward()
    passes.reduce(made)
    assert (passes.reduction, passes.classes) == (reduction, classes)
    passes.reduce(0.5)  # a float has no graph, and nothing changes


def test_a_module_for_the_loss_tells_reduction_classes_and_target():
    passes, target = Passes(), torch.tensor([0.0, float("nan")])
    passes.judge(nn.MSELoss(reduction="sum"), (torch.zeros(2), target))
    assert passes.reduction == "sum" and passes.target is not None and passes.target.isnan().tolist() == [False, True]
    passes.judge(nn.CrossEntropyLoss(), (torch.zeros(2, 7), torch.tensor([1, 2])))
    assert (passes.reduction, passes.classes) == ("mean", 7)


def test_the_first_pass_tells_its_operations_and_large_outputs_are_not_kept():
    model, passes = network(), Passes()
    passes.leave(model, {"logits": model(torch.randn(64, 4))})
    assert passes.nodes["SigmoidBackward0"] == 1 and passes.training and passes.made is not None
    assert passes.made.grad_fn is None
    passes.leave(model.eval(), model(torch.randn(100_000, 4)))
    assert passes.training is False and passes.made is None


def test_who_holds_which_weight_is_counted():
    model = network()
    model[1].weight.requires_grad_(False)
    optimizers = [torch.optim.Adam(model[0].parameters(), eps=1e-7), torch.optim.SGD(model[0].parameters(), 0.1)]
    known = facts_of(model, find_layers(model), optimizers, Passes())
    assert [layer.held for layer in known.layers] == [2, 0, 0]
    assert [layer.learns for layer in known.layers] == [True, False, False]
    assert (known.adaptive, known.eps, known.moody) == (True, 1e-7, True)
    assert (
        known.layers[1].momentum == 0.3
        and facts_of(model.eval(), find_layers(model), [], Passes()).layers[1].momentum is None
    )
    unknown = facts_of(model, find_layers(model), [], Passes())
    assert unknown.adaptive is None and unknown.layers[0].held is None and unknown.layers[0].learns


def test_an_output_that_stands_for_many_is_not_kept():
    model, passes = network().eval(), Passes()
    torch.func.vmap(lambda x: passes.leave(model, model(x[None])) or x)(torch.randn(3, 4))
    assert passes.made is None


@pytest.mark.parametrize(
    ("loss", "squashed", "classes", "entropy"),
    [
        (lambda out, y: functional.cross_entropy(out, y), None, 3, True),
        (lambda out, y: functional.cross_entropy(out.view(2, 32, 3)[:, 1:].flatten(0, 1), y[2:]), None, 3, True),
        (lambda out, y: functional.cross_entropy(out.log_softmax(-1), y), None, 3, True),  # is what it was
        (lambda out, y: functional.cross_entropy(10 * out.softmax(-1), y), None, 3, True),  # at a scale, on purpose
        (lambda out, y: functional.cross_entropy(out.softmax(-1).double(), y), ("LogSoftmax", "softmax"), 3, True),
        (
            lambda out, y: functional.cross_entropy(out.softmax(-1).view(2, 32, 3)[:, 1:].flatten(0, 1), y[2:]),
            ("LogSoftmax", "softmax"),
            3,
            True,
        ),
        (
            lambda out, y: functional.cross_entropy(out.sigmoid(), y, label_smoothing=0.1) + 1,
            ("LogSoftmax", "sigmoid"),
            3,
            False,
        ),
        (lambda out, y: functional.nll_loss(out.softmax(-1), y), ("NllLoss", "softmax"), 0, True),
        (
            lambda out, y: functional.binary_cross_entropy_with_logits(out.sigmoid(), torch.rand(64, 3)),
            ("BinaryCrossEntropyWithLogits", "sigmoid"),
            0,
            False,
        ),
        (lambda out, y: functional.cross_entropy(out, y, reduction="sum") / 64, None, 3, False),
        (lambda out, y: functional.cross_entropy(out, y) + out.square().mean(), None, 3, False),
    ],
)
def test_what_a_loss_is_given_is_read_from_its_graph(loss, squashed, classes, entropy):
    passes, out = Passes(), network()(torch.randn(64, 4))
    made = loss(out, torch.randint(3, (64,)))
    made.backward()
    passes.reduce(made)
    assert (passes.squashed, passes.classes, passes.entropy) == (squashed, classes, entropy)
    known = facts_of(network(), [], [], passes)
    assert (known.squashed, known.entropy) == (squashed, entropy)


@pytest.mark.parametrize(
    ("made", "coupled"),
    [
        (lambda given: torch.optim.Adam(given, weight_decay=0.1), True),
        (lambda given: torch.optim.AdamW(given, weight_decay=0.1), False),
        (lambda given: torch.optim.Adam(given), False),
        (lambda given: torch.optim.SGD(given, 0.1, weight_decay=0.1), False),
    ],
)
def test_decay_that_adam_divides_is_told_from_its_own(made, coupled):
    assert facts_of(network(), [], [made(network().parameters())], Passes()).coupled == coupled


def test_the_lowest_second_beta_of_adam_is_known_and_of_no_other_optimizer():
    weights = [nn.Parameter(torch.zeros(2)) for _ in range(2)]

    def betas(*optimizers) -> tuple[float, float] | None:
        return facts_of(network(), [], optimizers, Passes()).betas

    groups = [{"params": weights[:1], "betas": (0.8, 0.5)}, {"params": weights[1:]}]
    assert betas(torch.optim.AdamW(groups, betas=(0.9, 0.99))) == (0.8, 0.5)
    assert betas(torch.optim.SGD(weights, 0.1), torch.optim.NAdam(weights)) == (0.9, 0.999)
    assert betas(torch.optim.Adam(weights, betas=(0.9, 0.1), amsgrad=True)) is None  # its divisor never falls
    assert betas(torch.optim.Adamax(weights)) is betas(torch.optim.RMSprop(weights)) is betas() is None
