import math
from statistics import fmean

import pytest
import torch

from benchmarks.tangent_noise import TangentNoise
from normgauge.core.errors import InputError
from normgauge.geometry.dynamics import adam_equilibrium, adamw_equilibrium, angle, sgd_equilibrium
from normgauge.geometry.dynamics.equilibrium import increasing_root

ROWS = 40
"""Vectors simulated side by side: each step is that many samples."""


def simulated(make, noise, start: torch.Tensor, steps: int, skip: int) -> tuple[float, float, torch.Tensor]:
    """Root mean squares of the norm, of the angle a step and of each coordinate after ``skip`` steps."""
    w = torch.nn.Parameter(start.clone())
    optimizer = make([w])
    norms, turns, squares = [], [], torch.zeros_like(start)
    for step in range(steps):
        before, w.grad = w.detach().clone(), noise(w)
        optimizer.step()
        if step >= skip:
            norms.append(float(before.square().sum(1).mean()))
            turns.append(float(angle(before, w.detach()).square().mean()))
            squares += before.square()
    return math.sqrt(fmean(norms)), math.sqrt(fmean(turns)), (squares.mean(0) / len(norms)).sqrt()


def start(norm: float, count: int, rows: int = ROWS) -> torch.Tensor:
    w = torch.randn(rows, count, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    return norm * w / w.norm(dim=1, keepdim=True)


def test_sgd_with_constant_gradients_settles_exactly():
    """THEORY 12: ‖w‖⁴ = ηG²/(2λ − ηλ²), angle arccos(1 − ηλ)."""
    settled = sgd_equilibrium(lr=1.0, decay=0.05, gradient=1.0)
    assert settled.norm**4 == pytest.approx(1 / (0.1 - 0.0025), rel=1e-14)
    assert settled.angle == pytest.approx(math.acos(0.95), rel=1e-14)
    assert settled.effective_lr == pytest.approx(math.sqrt(0.1 - 0.0025), rel=1e-14)
    norm, turn, _ = simulated(
        lambda p: torch.optim.SGD(p, lr=1.0, weight_decay=0.05),
        TangentNoise([0.1] * 100, exact=True), start(3, 100, 2), 400, 300,
    )  # fmt: skip
    assert norm == pytest.approx(settled.norm, rel=1e-9)
    assert turn == pytest.approx(settled.angle, rel=1e-9)


@pytest.mark.parametrize(
    "options",
    [{"momentum": 0.9}, {"momentum": 0.5, "dampening": 0.4}, {"momentum": 0.9, "nesterov": True},
     {"momentum": 0.4, "nesterov": True}],
    ids=["momentum", "dampening", "nesterov", "mild-nesterov"],
)  # fmt: skip
def test_sgd_with_momentum_settles_where_predicted(options):
    settled = sgd_equilibrium(0.1, 0.05, 1.0, **options)
    norm, turn, _ = simulated(
        lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.05, **options),
        TangentNoise([0.1] * 100, exact=True), start(settled.norm, 100), 500, 100,
    )  # fmt: skip
    assert norm == pytest.approx(settled.norm, rel=2e-3)
    assert turn == pytest.approx(settled.angle, rel=2e-3)


def moments(lr: float, decay: float, alpha: float, nesterov: bool) -> tuple[float, float]:
    """Norm and angle by iterating E‖w‖², E w·v, E‖v‖² for G = 1: no closed form, no assumption on the size of ηλ."""
    # w' = p·w − q·g − r·v and v' = αv + g + λw
    p, q, r = (
        (1 - lr * decay * (1 + alpha), lr * (1 + alpha), lr * alpha**2)
        if nesterov
        else (1 - lr * decay, lr, lr * alpha)
    )
    ww, wv, vv = 1.0, 0.0, 0.0
    for _ in range(3000):
        gg, turned = 1 / ww, p - r * wv / ww
        ww, wv, vv = (
            p * p * ww + q * q * gg + r * r * vv - 2 * p * r * wv,
            p * alpha * wv + p * decay * ww - q * gg - r * alpha * vv - r * decay * wv,
            alpha**2 * vv + gg + decay**2 * ww + 2 * alpha * decay * wv,
        )
    return math.sqrt(ww), math.acos(turned)


@pytest.mark.parametrize("nesterov", [False, True], ids=["heavy-ball", "nesterov"])
@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("decay", [0.05, 1.0])
def test_the_closed_forms_are_the_fixed_point_of_the_moments(alpha, decay, nesterov):
    settled = sgd_equilibrium(0.3, decay, 1.0, momentum=alpha, nesterov=nesterov)
    assert (settled.norm, settled.angle) == pytest.approx(moments(0.3, decay, alpha, nesterov), rel=1e-9)


def test_a_large_radial_gradient_is_taken_out_of_the_rest():
    """Without momentum and with constant sizes the path is not random: equal to rounding."""
    radial, across = -0.5, TangentNoise([0.1] * 100, exact=True)
    norm, turn, _ = simulated(
        lambda p: torch.optim.SGD(p, lr=0.5, weight_decay=0.3),
        lambda w: across(w) + radial * w.detach() / w.detach().square().sum(1, keepdim=True),
        start(2, 100, 2), 300, 200,
    )  # fmt: skip
    settled = sgd_equilibrium(0.5, 0.3, math.hypot(1.0, radial), radial=radial)
    assert (norm, turn) == pytest.approx((settled.norm, settled.angle), rel=1e-9)


def test_the_angle_with_momentum_is_that_of_the_literature():
    assert sgd_equilibrium(1e-3, 1e-2, 1.0, momentum=0.9).angle == pytest.approx(math.sqrt(2e-5 / 1.9), rel=1e-5)


@pytest.mark.parametrize("momentum", [0.0, 0.8])
def test_a_radial_gradient_acts_as_decay(momentum):
    """A gradient with w·g = R: predicted, and simulated."""
    radial, across = -0.03, TangentNoise([0.1] * 100, exact=True)

    def noise(w: torch.Tensor) -> torch.Tensor:
        w = w.detach()
        return across(w) + radial * w / w.square().sum(1, keepdim=True)

    settled = sgd_equilibrium(0.1, 0.05, math.hypot(1.0, radial), momentum=momentum, radial=radial)
    norm, turn, _ = simulated(
        lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.05, momentum=momentum),
        noise, start(settled.norm, 100), 500, 100,
    )  # fmt: skip
    assert norm == pytest.approx(settled.norm, rel=3e-3)
    assert turn == pytest.approx(settled.angle, rel=3e-3)
    assert settled.norm > 1.04 * sgd_equilibrium(0.1, 0.05, 1.0, momentum=momentum).norm


@pytest.mark.parametrize(("momentum", "decay"), [(0.0, 0.01), (0.5, 0.005)], ids=["plain", "momentum"])
def test_a_deviation_falls_as_fast_as_the_time_constant_says(momentum, decay):
    settled = sgd_equilibrium(0.1, decay, 1.0, momentum=momentum)
    steps = round(settled.time_constant)
    w = torch.nn.Parameter(start(1.02 * settled.norm, 4_000, 1))
    optimizer = torch.optim.SGD([w], lr=0.1, weight_decay=decay, momentum=momentum)
    noise, path = TangentNoise([1 / math.sqrt(4_000)] * 4_000, exact=True), []
    for _ in range(3 * steps):
        path.append(float(w.detach().square().sum()) / settled.norm**2 - 1)
        w.grad = noise(w)
        optimizer.step()
    assert math.log(path[steps] / path[3 * steps - 1]) == pytest.approx(2, abs=0.2)


@pytest.mark.parametrize("beta1", [0.0, 0.9])
def test_adamw_settles_where_predicted_whatever_the_gradient(beta1):
    settled = adamw_equilibrium(0.01, 1.0, 100, beta1=beta1)
    assert settled.norm == pytest.approx(math.sqrt(0.01 * 100 / 2), rel=0.06)  # ηn/2λ
    for gradients in ([0.05] * 100, torch.logspace(-1, 0, 100)):
        norm, turn, coordinates = simulated(
            lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=1.0, betas=(beta1, 0.999)),
            TangentNoise(gradients), start(settled.norm, 100), 900, 200,
        )  # fmt: skip
        assert norm == pytest.approx(settled.norm, rel=0.03)
        assert turn == pytest.approx(settled.angle, rel=0.03)
    quarters = [float(q.square().mean()) for q in coordinates.chunk(4)]
    assert max(quarters) < 1.4 * min(quarters)  # no coordinate is favoured, though gradients span a decade


def test_adamw_with_a_radial_update():
    """A constant pull along w, as the normalized gradients of networks have it."""
    size, lr, decay, pull = 100, 0.01, 1.0, 0.02
    across = TangentNoise([1.0] * size)

    def noise(w: torch.Tensor) -> torch.Tensor:
        norms = w.detach().norm(dim=1, keepdim=True)
        return across(w) * norms - pull * size**0.5 * w.detach() / norms

    seen: list[float] = []

    def recorded(w: torch.Tensor) -> torch.Tensor:
        g = noise(w)
        seen.append(float((w.detach() * g).sum(1).mean()))
        return g

    norm, turn, _ = simulated(
        lambda p: torch.optim.AdamW(p, lr=lr, weight_decay=decay), recorded, start(0.8, size), 900, 250
    )
    with_it = adamw_equilibrium(lr, decay, size, radial=fmean(seen[250:]))
    assert norm == pytest.approx(with_it.norm, rel=0.03) and turn == pytest.approx(with_it.angle, rel=0.03)
    assert norm > 1.15 * adamw_equilibrium(lr, decay, size).norm


def test_coupled_adam_settles_where_predicted_coordinate_by_coordinate():
    gradients = (0.05 * torch.logspace(-0.5, 0.5, 100, dtype=torch.float64)).tolist()
    settled = adam_equilibrium(0.01, 0.05, gradients)
    predicted = torch.tensor(settled.coordinates, dtype=torch.float64)
    norm, turn, coordinates = simulated(
        lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.05),
        TangentNoise(gradients), start(1, 100).sign() * predicted, 1500, 300,
    )  # fmt: skip
    assert norm == pytest.approx(settled.norm, rel=0.03)
    assert turn == pytest.approx(settled.angle, rel=0.03)
    for found, wanted in zip(coordinates.chunk(4), predicted.chunk(4), strict=True):
        assert float(found.norm() / wanted.norm()) == pytest.approx(1, abs=0.1)


def test_coupled_adam_solves_its_equations_where_the_decay_is_large():
    lr, decay, sizes, kappa = 0.5, 2.0, [0.05, 0.3, 1.0], 0.1 / 1.9
    settled = adam_equilibrium(lr, decay, sizes)
    assert math.fsum(w * w for w in settled.coordinates) == pytest.approx(settled.norm**2, rel=1e-12)
    for size, w in zip(sizes, settled.coordinates, strict=True):
        kicks = (size / settled.norm) ** 2
        root = math.sqrt(kicks + (decay * w) ** 2)
        assert w * w * (2 * decay * root / lr - kappa * decay**2) == pytest.approx(kicks, rel=1e-9)
        assert decay * w > 0.1 * math.sqrt(kicks)  # the decay is no small part here


def test_coupled_adam_goes_the_other_way():
    """Gradients a thousand times smaller: AdamW's norm stays, Adam's falls tenfold and it turns faster."""
    large, small = (adam_equilibrium(1e-3, 1e-4, [g] * 1000) for g in (1.0, 1e-3))
    assert small.norm / large.norm == pytest.approx(1e-1, rel=1e-3)
    assert small.angle / large.angle == pytest.approx(10, rel=1e-3)
    assert large.norm**3 == pytest.approx(1e-3 * 1000 / 2e-4, rel=1e-4)
    sizes = adam_equilibrium(1e-3, 1e-4, [1.0, 4.0] * 100).coordinates
    assert sizes[1] / sizes[0] == pytest.approx(2, rel=1e-3)  # w_i² ∝ G_i


def test_where_decay_outweighs_the_gradient_its_size_cancels():
    """Far above the equilibrium every coordinate of coupled Adam falls by the learning rate a step."""
    ends = []
    for decay in (0.1, 10.0):
        w = torch.nn.Parameter(start(30, 100).sign().mul(3.0))
        optimizer = torch.optim.Adam([w], lr=0.01, weight_decay=decay)
        for _ in range(100):
            w.grad = torch.zeros_like(w)
            optimizer.step()
        ends.append(float(w.detach().abs().mean()))
    assert ends[0] == pytest.approx(2.0, abs=0.1) and ends[1] == pytest.approx(ends[0], rel=1e-3)


def test_a_coordinate_without_a_gradient_decays_to_zero():
    assert adam_equilibrium(0.01, 0.1, [0.0, 1.0, 1.0]).coordinates[0] == 0


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: sgd_equilibrium(0.1, 0.0, 1.0), "the norm of a scale-free vector only grows"),
        (lambda: adam_equilibrium(0.1, 0.0, [1.0]), "only grows"),
        (lambda: sgd_equilibrium(-0.1, 0.1, 1.0), "got lr=-0.1"),
        (lambda: sgd_equilibrium(0.1, 0.1, math.nan), "got gradient=nan"),
        (lambda: sgd_equilibrium(0.1, 0.1, 1.0, momentum=1.0), "momentum and dampening"),
        (lambda: sgd_equilibrium(0.1, 0.1, 1.0, momentum=0.9, dampening=0.1, nesterov=True), "no dampening"),
        (lambda: sgd_equilibrium(0.1, 0.1, 1.0, radial=2.0), "a part of the whole"),
        (lambda: sgd_equilibrium(3.0, 1.0, 1.0), "no equilibrium"),
        (lambda: adamw_equilibrium(0.1, 0.1, 0), "got size=0"),
        (lambda: adamw_equilibrium(0.1, 0.1, 10, beta1=1.0), "beta1 in"),
        (lambda: adamw_equilibrium(0.1, 10.0, 10), "turn the vector round"),
        (lambda: adamw_equilibrium(0.1, 0.1, 10, radial=100.0), "pulls inwards"),
        (lambda: adam_equilibrium(0.1, 0.1, []), "without any, w decays to zero"),
        (lambda: adam_equilibrium(0.1, 0.1, [0.0]), "without any, w decays to zero"),
        (lambda: adam_equilibrium(0.1, 0.1, [1.0], beta1=-1), "beta1 in"),
        (lambda: TangentNoise([1.0]), "at least two"),
        (lambda: increasing_root(lambda _: -1.0, 0.0, 1.0), "no equilibrium"),
    ],
    ids=range(17),
)  # fmt: skip
def test_what_has_no_equilibrium_is_refused(call, words):
    with pytest.raises(InputError, match=words):
        call()
