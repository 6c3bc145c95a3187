import copy
import io
import math

import pytest
import torch
from torch import nn

from normgauge.core.errors import InputError
from normgauge.geometry.dynamics import ScaleFree, SphereAdam, SphereSGD, angle, snapshot, vectors
from normgauge.geometry.dynamics.optimizer import SphereOptimizer
from tests.geometry.dynamics.nets import backward, batch_norm_net, data

MAKERS = {
    "sgd": lambda net, groups, **more: SphereSGD(net.named_parameters(), groups, lr=0.1, **more),
    "momentum": lambda net, groups, **more: SphereSGD(net.named_parameters(), groups, lr=0.1, momentum=0.9, **more),
    "adam": lambda net, groups, **more: SphereAdam(net.named_parameters(), groups, lr=0.05, **more),
}
every_optimizer = pytest.mark.parametrize("kind", MAKERS)


def norms(net: nn.Module, groups: list[ScaleFree]) -> torch.Tensor:
    return torch.cat([vectors(group, snapshot(net)).norm(dim=1) for group in groups])


def trained(net: nn.Module, optimizer: torch.optim.Optimizer, steps: int, first: int = 0) -> list[float]:
    losses = []
    for seed in range(first, first + steps):
        losses.append(float(backward(net, *data(seed=seed))))
        optimizer.step()
    return losses


@every_optimizer
@pytest.mark.parametrize("walk", ["exponential", "projection"])
def test_vectors_stay_on_their_spheres_to_rounding(kind, walk):
    net, groups = batch_norm_net()
    before, start = norms(net, groups), snapshot(net)
    trained(net, MAKERS[kind](net, groups, walk=walk), 200)
    assert torch.allclose(norms(net, groups), before, rtol=4e-16)
    assert float(angle(vectors(groups[0], start), vectors(groups[0], snapshot(net))).min()) > 0.01


@every_optimizer
def test_the_loss_falls(kind):
    net, groups = batch_norm_net()
    optimizer = MAKERS[kind](net, groups)
    losses = [float(backward(net, *data())) for _ in range(60) if optimizer.step() is None]
    assert losses[-1] < 0.7 * losses[1]


@every_optimizer
def test_the_path_of_directions_does_not_depend_on_the_gauge(kind):
    ends = []
    for factor in (1.0, 1000.0):
        net, groups = batch_norm_net()
        with torch.no_grad():
            net[0].weight *= factor
        trained(net, MAKERS[kind](net, groups), 30)
        ends.append(vectors(groups[0], snapshot(net)))
    assert float(angle(*ends).max()) < 1e-9


def matched(walk: str, lr: float, steps: int = 100) -> tuple[float, float]:
    """SGD beside SphereSGD at η/‖w‖² row by row: largest angle between the paths, and how far they went."""
    free, groups = batch_norm_net()
    bound = copy.deepcopy(free)
    plain = torch.optim.SGD(free.parameters(), lr=lr)
    sphere = SphereSGD(bound.named_parameters(), groups, lr=lr, walk=walk)
    start, apart = snapshot(free), 0.0
    for seed in range(steps):
        for i, group in enumerate(groups):
            sphere.param_groups[i]["lr"] = lr / vectors(group, snapshot(free)).square().sum(1)
        for net, optimizer in ((free, plain), (bound, sphere)):
            backward(net, *data(seed=seed))
            optimizer.step()
        apart = max(apart, *(float(angle(*(vectors(g, snapshot(n)) for n in (free, bound))).max()) for g in groups))
    return apart, float(angle(vectors(groups[0], start), vectors(groups[0], snapshot(free))).median())


def test_sgd_and_sphere_sgd_take_the_same_path_at_matched_effective_learning_rates():
    apart, gone = matched("projection", 0.3)
    assert apart < 1e-10 and gone > 0.1
    apart, gone = matched("exponential", 0.1)
    assert apart < 1e-3 and gone > 0.05


@every_optimizer
def test_other_parameters_get_the_plain_update(kind):
    options = {"sgd": {}, "momentum": {"momentum": 0.9}, "adam": {}}[kind]
    plain = torch.optim.AdamW if kind == "adam" else torch.optim.SGD
    net, _ = batch_norm_net()
    other = copy.deepcopy(net)
    rate = 0.05 if kind == "adam" else 0.1
    trained(net, MAKERS[kind](net, [], weight_decay=0.1), 20)
    trained(other, plain(other.parameters(), lr=rate, weight_decay=0.1, **options), 20)
    assert all(torch.allclose(a, b, rtol=1e-12) for a, b in zip(net.parameters(), other.parameters(), strict=True))


@every_optimizer
def test_a_stored_state_goes_on_bit_for_bit(kind):
    net, groups = batch_norm_net()
    optimizer = MAKERS[kind](net, groups)
    trained(net, optimizer, 10)
    file = io.BytesIO()
    torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    stored = torch.load(file, weights_only=True)
    other, _ = batch_norm_net(seed=9)
    resumed = MAKERS[kind](other, groups)
    other.load_state_dict(stored["net"])
    resumed.load_state_dict(stored["optimizer"])
    trained(net, optimizer, 10, first=10)
    trained(other, resumed, 10, first=10)
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), other.parameters(), strict=True))


def test_a_state_of_other_groups_is_refused():
    net, groups = batch_norm_net()
    state = MAKERS["sgd"](net, groups).state_dict()
    with pytest.raises(InputError, match="other scale-free groups"):
        MAKERS["sgd"](net, groups[:1]).load_state_dict(state)


@every_optimizer
def test_layer_norm_moves_weight_and_bias_as_one_vector(kind):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 6), nn.LayerNorm(6, eps=1e-30), nn.Tanh(), nn.Linear(6, 4)).double()
    group = ScaleFree(("0.weight", "0.bias"), 1)
    before, start = norms(net, [group]), snapshot(net)
    trained(net, MAKERS[kind](net, [group]), 30)
    assert torch.allclose(norms(net, [group]), before, rtol=4e-16)
    assert not torch.equal(start["0.bias"], net[0].bias)


def test_sphere_adam_turns_by_about_its_rate():
    net, groups = batch_norm_net()
    optimizer = SphereAdam(net.named_parameters(), groups, lr=1e-3, sphere_lr=0.02)
    before = snapshot(net)
    trained(net, optimizer, 1)
    turned = angle(vectors(groups[0], before), vectors(groups[0], snapshot(net)))
    assert torch.allclose(turned, torch.full((12,), 0.02, dtype=torch.float64), rtol=1e-4)


def test_a_closure_a_missing_gradient_and_a_late_group():
    net, groups = batch_norm_net()
    optimizer = MAKERS["momentum"](net, groups)
    x, y = data()
    assert optimizer.step(lambda: float(backward(net, x, y))) > 0
    start = snapshot(net)
    net.zero_grad()
    net[6].bias.sum().backward()
    optimizer.step()
    assert [name for name, p in net.named_parameters() if not torch.equal(p, start[name])] == ["6.bias"]
    extra = nn.Parameter(torch.ones(2))
    optimizer.add_param_group({"params": [extra]})
    extra.grad = torch.ones(2)
    optimizer.step()
    assert torch.allclose(extra, torch.full((2,), 0.9))


def test_part_of_a_vector_may_have_no_gradient():
    net = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4)).double()
    optimizer = SphereSGD(net.named_parameters(), [ScaleFree(("0.weight", "0.bias"), 1)], lr=0.1)
    net[0].weight.pow(3).sum().backward()
    before = norms(net, [ScaleFree(("0.weight", "0.bias"), 1)])
    optimizer.step()
    assert torch.allclose(norms(net, [ScaleFree(("0.weight", "0.bias"), 1)]), before, rtol=4e-16)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"groups": [ScaleFree(("0.wieght",), 12)]}, r"no parameter called '0\.wieght'; near: 0\.weight"),
        ({"groups": [ScaleFree(("0.weight",), 12)] * 2}, "in two scale-free groups"),
        ({"groups": [ScaleFree(("0.weight",), 5)]}, "cannot be cut into 5"),
        ({"lr": -1.0}, "expected lr >= 0"),
        ({"lr": math.nan}, "expected lr >= 0"),
        ({"sphere_lr": -1.0}, "expected sphere_lr >= 0"),
        ({"weight_decay": -1.0}, "expected weight_decay >= 0"),
        ({"walk": "drive"}, "use 'exponential' or 'projection'"),
    ],
    ids=["name", "twice", "rows", "lr", "nan", "sphere_lr", "decay", "walk"],
)
@pytest.mark.parametrize("make", [SphereSGD, SphereAdam])
def test_bad_options_are_refused(make, options, words):
    net, groups = batch_norm_net()
    with pytest.raises(InputError, match=words):
        make(net.named_parameters(), **{"groups": groups} | options)


def test_bad_momentum_and_betas_are_refused():
    net, groups = batch_norm_net()
    with pytest.raises(InputError, match="momentum in"):
        SphereSGD(net.named_parameters(), groups, momentum=1.0)
    with pytest.raises(InputError, match="betas in"):
        SphereAdam(net.named_parameters(), groups, betas=(0.9, 1.0))


def test_a_zero_vector_and_a_half_frozen_group_are_refused():
    net, groups = batch_norm_net()
    with torch.no_grad():
        net[0].weight[3] = 0
    with pytest.raises(InputError, match=r"rows \[3\]"):
        SphereSGD(net.named_parameters(), groups)
    other = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4))
    other[0].bias.requires_grad_(False)
    with pytest.raises(InputError, match=r"0\.bias is frozen"):
        SphereSGD(other.named_parameters(), [ScaleFree(("0.weight", "0.bias"), 1)])


def test_the_shared_part_alone_does_not_move():
    net, groups = batch_norm_net()
    backward(net, *data())
    for chosen, words in ((groups, "define _turn"), ([], "define _plain")):
        optimizer = SphereOptimizer(
            net.named_parameters(), chosen, sphere_lr=None, walk="exponential", lr=0.1, weight_decay=0.0
        )
        with pytest.raises(NotImplementedError, match=words):
            optimizer.step()
