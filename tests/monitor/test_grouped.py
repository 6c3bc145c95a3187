"""The kernels for devices: run by Triton's interpreter on a CPU where Triton is installed, else on a device."""

import math
import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
pytest.importorskip("triton", reason="Triton is not installed: pip install triton")

from normgauge.monitor.grouped import Compared, GroupedMaps, Squares, Table, can_compare, can_square
from normgauge.monitor.maps import MatrixMaps
from normgauge.monitor.warm import Fold, Job, cold_space, proved_lower, turn

pytestmark = pytest.mark.filterwarnings("ignore:(invalid value|divide by zero):RuntimeWarning")  # numpy's, of 0/0
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SHAPES = ((5, 7), (130, 9), (3, 200), (64, 64), (1, 1))


def drawn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 6])
def test_products_of_all_shapes(rows: int, dtype: torch.dtype) -> None:
    weights = [drawn(*shape, seed=k, dtype=dtype) for k, shape in enumerate(SHAPES)]
    maps = GroupedMaps(weights, Table(weights))
    given, back = (
        drawn(len(SHAPES), rows, maps.inputs, seed=9).double(),
        drawn(len(SHAPES), rows, maps.outputs).double(),
    )
    made, returned = maps.forward(given), maps.adjoint(back)
    for k, (high, wide) in enumerate(SHAPES):
        exact = weights[k].double()
        allowed = float(maps.product_error(exact.norm())) * (1 if dtype == torch.float64 else 0.2)  # it is far less
        for found, true, sent in (
            (made[k, :, :high], given[k, :, :wide] @ exact.T, given[k, :, :wide]),
            (returned[k, :, :wide], back[k, :, :high] @ exact, back[k, :, :high]),
        ):
            assert bool(((found - true).norm(dim=-1) <= allowed * sent.norm(dim=-1)).all())
        assert not made[k, :, high:].any() and not returned[k, :, wide:].any()
        assert math.isclose(float(maps.sizes()[k]), float(weights[k].double().norm()), rel_tol=1e-6)
        assert int(maps.inside[k].sum()) == wide


@pytest.mark.parametrize("folds", [False, True])
def test_a_turn_is_that_of_torch(folds: bool) -> None:
    weights = [drawn(*shape, seed=k) for k, shape in enumerate(((40, 30), (7, 33), (64, 5), (3, 3)))]
    maps = GroupedMaps(weights, Table(weights))
    cold = torch.nn.functional.normalize(cold_space(4, maps.inputs, weights[0], torch.float64) * maps.inside, dim=-1)
    outer, inner = drawn(4, 1, maps.outputs, seed=7).double(), drawn(4, 1, maps.inputs, seed=8).double()
    fold = Fold(outer, inner) if folds else Fold(None, None)
    plain = MatrixMaps(weights, torch.float64)
    ours, theirs = (
        Job(maps, cold.clone(), cold[:, :1].clone(), fold),
        Job(plain, cold.clone(), cold[:, :1].clone(), fold),
    )
    for moves in (True, True, True):
        (mine,), (other,) = turn([ours], moves=moves), turn([theirs], moves=moves)
        for name in ("image", "length", "parts", "gain"):
            torch.testing.assert_close(getattr(mine, name), getattr(other, name), rtol=1e-4, atol=1e-6)
        ours, theirs = Job(maps, mine.space, mine.folded, fold), Job(plain, other.space, other.folded, fold)
    for _ in range(20):
        (mine,) = turn([ours])
    lower = proved_lower(maps, mine, maps.sizes())
    true = torch.stack([torch.linalg.matrix_norm(w.double(), 2) for w in weights])
    assert bool((lower <= true).all()) and bool((lower >= 0.999 * true).all())


def test_a_turn_leaves_dead_directions_where_they_were() -> None:
    weights = [torch.zeros(4, 4, device=DEVICE), torch.full((4, 4), math.nan, device=DEVICE), drawn(4, 4)]
    maps = GroupedMaps(weights, Table(weights))
    cold = cold_space(3, 4, weights[0], torch.float64)
    (found,) = turn([Job(maps, cold.clone(), cold[:, :1].clone(), Fold(None, None))])
    torch.testing.assert_close(found.space[:2], cold[:2])
    torch.testing.assert_close(found.folded[:2], cold[:2, :1])
    assert proved_lower(maps, found, maps.sizes())[:2].tolist() == [0.0, 0.0] and bool(found.image[2] > 0)


@pytest.mark.parametrize("kept", [False, True])
def test_weights_beside_their_gradients(kept: bool) -> None:
    tall = drawn(130, 24, seed=1)
    weights = [drawn(7), tall[::8], drawn(3, 2, 5, seed=2)]
    tall_slope = drawn(130, 24, seed=4)
    gradients = [drawn(7, seed=3), tall_slope[::8], None]
    assert can_compare(weights, gradients)
    compared = Compared(weights)
    before = [w.clone() for w in weights]
    if kept:
        compared.keep()
        for weight in weights:
            weight.mul_(1.5)
    whole = [gradients[0], tall_slope, None]
    compared.meet(whole, lambda place, slope: slope[::8] if place == 1 else slope)
    compared.compare(kept=kept)
    sums = torch.stack(list(compared.added()), 1).cpu()
    for part, (weight, slope, old) in enumerate(zip(weights, gradients, before, strict=True)):
        step = old - weight if kept else torch.zeros_like(weight)
        slope = torch.zeros_like(weight) if slope is None else slope
        wanted = [(weight * weight).sum(), (slope * slope).sum(), (slope * old).sum(), (step * step).sum()]
        torch.testing.assert_close(sums[part].float(), torch.stack(wanted).cpu())
        if kept:
            torch.testing.assert_close(compared.steps[part], step)


def test_what_one_kernel_cannot_read() -> None:
    assert not can_compare([drawn(4, 4).T[1:]], [None])
    assert not can_compare([drawn(4), drawn(4).double()], [None, None])
    assert not can_compare([drawn(0)], [None])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_norms_of_tensors_wherever_they_are_now(dtype: torch.dtype) -> None:
    shapes = ((7,), (130, 70), (3, 2, 5))
    squares = Squares([drawn(*shape, dtype=dtype) for shape in shapes])
    for seed, size in enumerate((1.0, 1e-3, 1e15)):  # each time elsewhere
        now = [drawn(*shape, seed=seed, dtype=dtype) * size for shape in shapes]
        assert squares.fit(now) and can_square(now)
        squares.meet(now)
        torch.testing.assert_close(squares.norms(), torch.stack([x.double().norm() for x in now]))
    now[1][0, 0] = math.nan
    assert squares.norms().isnan().tolist() == [False, True, False]
    other = [drawn(*shape, dtype=dtype) for shape in shapes[:2]]
    assert not squares.fit(other) and not squares.fit([*other, drawn(3, 5, 2, dtype=dtype).transpose(1, 2)])
    assert not can_square([drawn(4), drawn(4).double()]) and not can_square([drawn(0)])


def test_gradients_are_found_wherever_they_lie_at_a_step() -> None:
    weights, gradients = [drawn(7), drawn(3, 5)], [drawn(7, seed=3), drawn(3, 5, seed=4)]
    compared = Compared(weights)
    places = [tensor.data_ptr() for tensor in compared.state]

    def found(several: list[torch.Tensor | None]) -> list[float]:
        compared.meet(several, lambda place, slope: slope)
        compared.compare(kept=False)
        return list(compared.added())[1].tolist()

    def wanted(several: list[torch.Tensor | None]) -> list[float]:
        return [0.0 if slope is None else float(slope.double().square().sum()) for slope in several]

    turned = drawn(5, 3, seed=6).T
    for several in (
        [*gradients], [2 * slope for slope in gradients], [None, gradients[1]], [gradients[0], turned],
        [slope.to(torch.bfloat16) for slope in gradients], [gradients[0], gradients[1].double()], [None, None],
        [*gradients],
    ):  # fmt: skip
        assert found(several) == pytest.approx(wanted(several), rel=1e-5)
    assert [tensor.data_ptr() for tensor in compared.state] == places  # a graph goes on from there
