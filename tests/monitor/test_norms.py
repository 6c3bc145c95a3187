"""Norms of layers at every reading: proved from below whatever the numbers, from above where a proof was taken."""

import math

import pytest
import torch
from torch import nn

from normgauge.instrument.spectral.conv import dense_blocks
from normgauge.monitor import maps, warm
from normgauge.monitor.layers import WatchedLayer
from normgauge.monitor.maps import CHUNK, frobenius_norms, is_pointwise, spec_of
from normgauge.monitor.norms import SUM_ROOM, Group, Norms, Part, read_together
from normgauge.monitor.proofs import CHANCE, SLOT, chance_at, factored_proof
from normgauge.monitor.schedule import Schedule
from normgauge.monitor.sheet import Row, Sheet, fetch_numbers


def numbers(group: Group, weights: list[torch.Tensor], turns: int = 1) -> dict[int, Row]:
    sheet = Sheet()
    read_together([group], [weights], [[(None, None)] * len(weights)], turns, sheet)
    fetch_numbers(sheet, lambda sheet, reading, proving: None).deliver()
    return sheet.layers


def proved(group: Group, weights: list[torch.Tensor], step: int = 1) -> dict[int, tuple[float, float]]:
    sizes = (SUM_ROOM * frobenius_norms(weights)).tolist()
    part, chance = Part(group, group.rows), chance_at(step, len(weights))
    return part.prove(weights, step, chance, 7).ends(sizes)


def truth(weight: torch.Tensor) -> float:
    return float(torch.linalg.matrix_norm(weight.double().flatten(1), 2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(7, 7), (40, 8), (8, 40), (1, 5), (5, 1), (64, 48), (130, 150)], ids=str)
def test_ends_hold_while_the_weights_walk(dtype: torch.dtype, shape: tuple[int, int]) -> None:
    torch.manual_seed(3)
    weights = [torch.randn(shape).to(dtype) for _ in range(3)]
    group = Group("key", [4, 7, 9])
    for step in range(30):
        weights = [(weight.float() + 0.03 * torch.randn(shape)).to(dtype) for weight in weights]
        found = numbers(group, weights)
        for row, weight in zip(group.rows, weights, strict=True):
            assert 0.9 * truth(weight) <= found[row]["norm_lower"] <= truth(weight)
        if step % 10 == 0:
            for weight, (lower, upper) in zip(weights, proved(group, weights, step).values(), strict=True):
                assert lower <= truth(weight) <= upper <= 1.05 * lower


def test_matrices_of_several_shapes_are_measured_together_and_proved_by_shape() -> None:
    torch.manual_seed(4)
    shapes = [(10, 300), (300, 200), (200, 300), (200, 300), (1, 400)]
    linear = [nn.Linear(wide, tall) for tall, wide in shapes]
    layers = {row: WatchedLayer(str(row), module, "weight", "matrix") for row, module in enumerate(linear)}
    norms = Norms()
    norms.follow({row: (layer, layer.module.weight.detach()) for row, layer in layers.items()}, {})
    (group,) = norms.groups
    assert sorted(map(sorted, (part.rows for part in norms.parts))) == [[0], [1], [2, 3], [4]]
    weights = [linear[row].weight.detach() for row in group.rows]
    inner = {row: torch.rand(shapes[row][1]) + 0.5 for row in group.rows}
    for turns in (1, 1, 4, 0, 0):
        for weight in weights:
            weight += 0.003 * torch.randn_like(weight)
        sheet = Sheet()
        read_together([group], [weights], [[(None, inner[row]) for row in group.rows]], turns, sheet)
        fetch_numbers(sheet, lambda sheet, reading, proving: None).deliver()
        for row, weight in zip(group.rows, weights, strict=True):
            found = sheet.layers[row]
            assert 0.93 * truth(weight) <= found["norm_lower"] <= truth(weight)
            assert 0.9 * truth(weight * inner[row]) <= found["folded"] <= (1 + 1e-6) * truth(weight * inner[row])
            assert found["frobenius"] == pytest.approx(float(weight.double().norm()), rel=1e-6)
    for part in norms.parts:
        given = [linear[row].weight.detach() for row in part.rows]
        begun = part.factored(given, 5, fresh=False) or part.prove(given, 5, 1e-9, 3)
        ends = begun.ends((SUM_ROOM * frobenius_norms(given)).tolist()).values()
        for (lower, upper), weight in zip(ends, given, strict=True):
            assert lower <= truth(weight) <= upper <= 1.06 * lower


@pytest.mark.parametrize("shape", [(150, 140), (140, 300), (300, 140)], ids=str)
def test_ends_from_gram_matrices_are_those_from_products(
    shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    weights = [torch.randn(shape) * scale for scale in (1e-6, 1.0, 30.0)]
    expected = proved(Group("key", [0, 1, 2]), weights)
    monkeypatch.setattr(maps, "multiplies_doubles", lambda device: True)
    monkeypatch.setattr(maps, "MOST_COPIED", 2 * shape[0] * shape[1])  # so that they come two at a time
    asked: list[int] = []
    gram_matrices = maps.gram_matrices
    monkeypatch.setattr(maps, "gram_matrices", lambda given: asked.append(len(given)) or gram_matrices(given))
    made = proved(Group("key", [0, 1, 2]), weights)
    assert asked == [3]
    for weight, one, other in zip(weights, made.values(), expected.values(), strict=True):
        assert one[0] <= truth(weight) <= one[1]
        assert one == pytest.approx(other, rel=1e-9)


@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1e-4, 1e6, 1e18])
def test_ends_hold_at_odd_scales(scale: float) -> None:
    torch.manual_seed(1)
    for shape in ((30, 20), (120, 110)):
        weight = torch.randn(shape) * scale
        group = Group("key", [0])
        lower, upper = proved(group, [weight])[0]
        assert numbers(group, [weight])[0]["norm_lower"] <= truth(weight) <= upper
        assert lower <= truth(weight)


def test_a_weight_that_is_no_number_says_nothing_and_recovers() -> None:
    torch.manual_seed(0)
    weight = torch.randn(6, 6)
    group = Group("key", [0])
    numbers(group, [weight], 8)
    for bad in (math.nan, math.inf, 3e38):
        broken = weight.clone()
        broken[2, 3] = bad
        low = numbers(group, [broken])[0]["norm_lower"]
        assert low == 0.0 or (bad == 3e38 and low <= truth(broken))
        lower, upper = proved(group, [broken])[0]
        assert (lower, upper) == (0.0, math.inf) or (bad == 3e38 and lower <= truth(broken) <= upper)
    assert numbers(group, [weight], 30)[0]["norm_lower"] > 0.99 * truth(weight)


def test_zero_has_norm_zero_and_recovers() -> None:
    group, weight = Group("key", [0]), torch.zeros(5, 4)
    assert numbers(group, [weight])[0]["norm_lower"] == 0.0
    lower, upper = proved(group, [weight])[0]
    assert lower == 0.0 and upper < 1e-15
    grown = torch.randn(5, 4)
    assert numbers(group, [grown], 10)[0]["norm_lower"] > 0.99 * truth(grown)


def test_directions_follow_a_top_that_changes() -> None:
    torch.manual_seed(0)
    weight = torch.randn(50, 50)
    weight[0] *= 3
    group = Group("key", [0])
    numbers(group, [weight])
    weight[0] /= 3
    weight[1] *= 4  # the top is another row now
    for _ in range(4):
        last = numbers(group, [weight])[0]["norm_lower"]
    assert 0.99 * truth(weight) <= last


def test_norms_that_others_overtake_stay_within_a_per_cent() -> None:
    torch.manual_seed(1)
    side, steps, lr = 160, 90, 2e-3
    weights = [torch.randn(side, side) / side**0.5 for _ in range(3)]
    slopes = [(torch.randn(side, 60), torch.randn(60, side)) for _ in weights]
    group, plan, short, turned = Group("key", [0, 1, 2]), Schedule(0.03, 1, 0), [], 0
    for step in range(1, steps + 1):
        for k, (left, right) in enumerate(slopes):  # steps like those of Adam, along directions that come and go
            left.mul_(0.9).add_(torch.randn_like(left), alpha=0.44)
            right.mul_(0.99).add_(torch.randn_like(right), alpha=0.14)
            weights[k] = weights[k] + lr * (left @ right).sign()
        plan.reads(step)
        found = numbers(group, weights, plan.turning.turns)
        plan.turning.turned(step, group.gained)
        short += [1 - found[k]["norm_lower"] / truth(weight) for k, weight in enumerate(weights)]
        turned += plan.turning.turns
    assert min(short) >= 0.0 and max(short[6:]) < 0.008  # three directions at twice the turns: 0.012
    assert turned < 1.2 * steps


def test_directions_that_are_combinations_of_others_do_no_harm() -> None:
    torch.manual_seed(0)
    weight = torch.randn(200, 180)
    group = Group("key", [0])
    numbers(group, [weight], 2)
    assert group.space is not None
    for alike in (1, 5):
        group.space[:, -alike:] = group.space[:, :1]
        assert numbers(group, [weight], 1)[0]["norm_lower"] <= truth(weight)
    assert 0.99 * truth(weight) <= numbers(group, [weight], 30)[0]["norm_lower"] <= truth(weight)


def test_folded_is_the_norm_with_rows_and_columns_rescaled() -> None:
    torch.manual_seed(0)
    weights = [torch.randn(20, 12) for _ in range(3)]
    outer, inner = torch.rand(20) * 5, torch.rand(12) * 5
    folds = [(outer, None), (None, inner), (torch.tensor(2.5), inner)]
    group, sheet = Group("key", [0, 1, 2]), Sheet()
    for _ in range(20):
        sheet = Sheet()
        read_together([group], [weights], [folds], 6, sheet)
    fetch_numbers(sheet, lambda sheet, reading, proving: None).deliver()
    expected = [outer[:, None] * weights[0], weights[1] * inner, 2.5 * weights[2] * inner]
    for row in range(3):
        assert sheet.layers[row]["folded"] == pytest.approx(truth(expected[row]), rel=1e-3)


def test_wide_matrices_are_measured_transposed_beside_tall_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "normgauge.monitor.norms.is_turned", lambda weight: weight.shape[0] < weight.shape[1]
    )  # as on a device
    torch.manual_seed(0)
    weights = [
        torch.randn(60, 20),
        torch.randn(20, 50),
        torch.randn(20, 20),
        torch.randn(160, 140),
        torch.randn(140, 160),
    ]
    folds = [(torch.rand(len(w)) * 5, torch.rand(w.shape[1]) * 5) for w in weights]
    for rows in ([0, 1, 2], [3, 4]):
        group, given, sheet = Group("key", rows), [weights[row] for row in rows], Sheet()
        read_together([group], [given], [[folds[row] for row in rows]], 200, sheet)
        fetch_numbers(sheet, lambda sheet, reading, proving: None).deliver()
        for (row, (lower, upper)), weight in zip(proved(group, given).items(), given, strict=True):
            folded = folds[row][0][:, None] * weight * folds[row][1]
            assert sheet.layers[row]["folded"] == pytest.approx(truth(folded), rel=1e-3)
            assert 0.99 * truth(weight) <= sheet.layers[row]["norm_lower"] <= truth(weight)
            assert lower <= truth(weight) <= upper <= 1.05 * lower


def spectra(rows: int, columns: int) -> list[torch.Tensor]:
    """Matrices whose largest singular values stand alone, together, and far above a long tail."""
    plain = torch.randn(rows, columns)
    sides = [torch.linalg.qr(torch.randn(side, min(rows, columns)).double())[0] for side in (rows, columns)]
    flat = (sides[0] @ sides[1].T).float()  # all of them 1
    tailed = sides[0] @ torch.logspace(0, -6, min(rows, columns)).double().diag() @ sides[1].T
    return [plain, plain + 3 * torch.randn(rows, 1) * torch.randn(1, columns), flat, tailed.float(), 1e-9 * plain]


@pytest.mark.parametrize("shape", [(512, 512), (300, 1024), (130, 150)], ids=str)
def test_directions_that_are_all_but_combinations_of_each_other_still_show_the_norm(shape: tuple[int, int]) -> None:
    """Of a matrix of rank one, kept directions become one but for rounding, which the best combination was made of."""
    torch.manual_seed(0)
    weight, group = torch.ones(shape), Group("a", [0])
    weight[:, ::2] = -1
    for step in range(1, 25):
        weight *= 0.9 if step % 3 == 0 else 1.0
        weight[int(torch.randint(0, shape[0], ()))] *= -1
        lower = numbers(group, [weight], turns=4)[0]["norm_lower"]
        assert 0.99 * truth(weight) <= lower <= truth(weight)


@pytest.mark.parametrize(("rows", "columns"), [(160, 130), (200, 1100), (512, 512), (700, 660)])
def test_a_factorization_proves_an_end_a_little_above_the_one_from_below(rows: int, columns: int) -> None:
    torch.manual_seed(rows)
    for weight in spectra(rows, columns):
        norm = truth(weight)
        begun = factored_proof([weight], [0.995 * norm], [3], 7)
        assert begun is not None and begun.chance == 0.0
        (lower, upper) = begun.ends([SUM_ROOM * float(weight.double().norm())])[3]
        assert 0.99 * norm < lower <= norm <= upper <= 1.05 * 0.995 * norm


def test_a_factorization_proves_nothing_that_is_not_so() -> None:
    torch.manual_seed(0)
    for weight in spectra(300, 300):
        norm = truth(weight)
        for short in (0.9, 0.94, 0.95):  # no end within reach of these holds
            assert factored_proof([weight], [short * norm], [0], 1) is None
    for bad in (math.nan, math.inf, 0.0):
        assert factored_proof([torch.randn(300, 300)], [bad], [0], 1) is None
    assert factored_proof([torch.full((300, 300), math.nan)], [1.0], [0], 1) is None


def test_a_proof_at_a_line_without_norms_has_both_ends() -> None:
    torch.manual_seed(0)
    weights = [torch.randn(300, 200) for _ in range(4)]
    group = Group("a", [0, 1, 2, 3])
    numbers(group, weights, turns=8)
    moved = [weight + 0.02 * torch.randn_like(weight) for weight in weights]
    part = Part(group, [1, 2])
    begun = part.factored(moved[1:3], 40, fresh=False)
    assert begun is not None
    sizes = (SUM_ROOM * frobenius_norms(moved[1:3])).tolist()
    for row, (lower, upper) in begun.ends(sizes).items():
        assert 0.98 * truth(moved[row]) <= lower <= truth(moved[row]) <= upper <= 1.05 * lower


def test_what_is_looked_at_without_a_turn_is_from_below_and_leaves_the_directions() -> None:
    torch.manual_seed(0)
    weights = [torch.randn(300, 200) for _ in range(2)]
    group = Group("a", [0, 1])
    numbers(group, weights, turns=8)
    before = group.space.clone()
    moved = [weight + 1e-3 * torch.randn_like(weight) for weight in weights]
    found = numbers(group, moved, turns=0)
    assert torch.equal(before, group.space)
    for row, weight in enumerate(moved):
        assert 0.99 * truth(weight) <= found[row]["norm_lower"] <= truth(weight)


def test_long_sums_go_in_pieces() -> None:
    torch.manual_seed(0)
    long = torch.randn(CHUNK + 77)
    room = CHUNK * torch.finfo(torch.float32).eps / 2
    assert 1 + room < SUM_ROOM
    assert float(frobenius_norms([long])) == pytest.approx(float(long.double().norm()), rel=room)


def test_the_chance_of_a_run_is_bounded_however_long_it_is() -> None:
    steps = range(0, 2_000_000, SLOT)
    assert math.fsum(12 * chance_at(step, 12) for step in steps) < CHANCE
    norms = Norms()
    layers = {i: WatchedLayer(str(i), nn.Linear(140, 140), "weight", "matrix") for i in range(3)}
    norms.follow({i: (layer, layer.weight) for i, layer in layers.items()}, {})
    (part,) = norms.parts
    assert norms.provable(3) == [part]
    weights = [layer.module.weight.detach() for layer in layers.values()]  # type: ignore[misc]
    norms.book(part, part.prove(weights, 3, norms.chance(3), 7), 0.1)
    assert norms.provable(SLOT - 1) == [] and norms.provable(SLOT) == [part]


def test_layers_of_one_shape_are_one_group_and_another_type_is_followed_anew() -> None:
    norms = Norms()
    layers = [WatchedLayer(str(i), nn.Linear(6, 5), "weight", "matrix") for i in range(3)]
    norms.follow({i: (layer, layer.weight) for i, layer in enumerate(layers)}, {})
    (group,) = norms.groups
    norms.follow({i: (layer, layer.weight) for i, layer in enumerate(layers)}, {})
    assert norms.groups == [group] and group.rows == [0, 1, 2]
    layers[1].module.double()
    norms.follow({i: (layer, layer.weight) for i, layer in enumerate(layers)}, {})
    assert [made.rows for made in norms.groups] == [[0, 2], [1]] and group not in norms.groups


LAYERS = {
    "padded": (lambda: nn.Conv2d(3, 4, 3, padding=1), (6, 6)),
    "strided": (lambda: nn.Conv2d(3, 4, 3, stride=2, padding=1), (7, 6)),
    "grouped": (lambda: nn.Conv2d(4, 6, 3, groups=2), (6, 6)),
    "dilated": (lambda: nn.Conv2d(2, 3, 3, dilation=2, padding="same"), (7, 7)),
    "circular": (lambda: nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular"), (5, 5)),
    "reflect": (lambda: nn.Conv2d(2, 3, 3, padding=2, padding_mode="reflect"), (5, 5)),
    "transposed": (lambda: nn.ConvTranspose2d(3, 2, 3, stride=2, padding=1, output_padding=1), (4, 4)),
    "line": (lambda: nn.Conv1d(3, 5, 5, padding=2), (9,)),
    "volume": (lambda: nn.Conv3d(2, 2, 2), (3, 3, 3)),
    "valid": (lambda: nn.Conv2d(2, 2, 3, padding="valid"), (5, 5)),
    "large": (lambda: nn.Conv2d(3, 4, 3, padding=1), (9, 9)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_ends_hold_while_the_kernel_walks(name: str) -> None:
    torch.manual_seed(2)
    build, size = LAYERS[name]
    module = build()
    norms, layer = Norms(), WatchedLayer("conv", module, "weight", "conv")
    norms.follow({0: (layer, module.weight.detach())}, {})
    assert 0 not in norms
    norms.follow({0: (layer, module.weight.detach())}, {module: size})
    (group,) = norms.groups
    for step in range(12):
        weight = module.weight.detach()
        found = numbers(group, [weight])[0]["norm_lower"]
        true = float(torch.linalg.matrix_norm(dense_blocks(weight.double(), spec_of(module, size)), 2).max())
        assert 0.9 * true <= found <= true
        if step == 6:
            lower, upper = proved(group, [weight])[0]
            assert lower <= true <= upper <= 1.1 * lower
        module.weight.data += 0.01 * torch.randn_like(weight)


@pytest.mark.parametrize("per_channel", [True, False])
def test_folded_follows_the_rescaled_convolution(per_channel: bool) -> None:
    torch.manual_seed(0)
    module = nn.Conv2d(2, 3, 3, padding=1)
    scale = torch.tensor([0.2, 4.0, 1.0]) if per_channel else torch.tensor(2.5)
    group = Group("key", [0], WatchedLayer("conv", module, "weight", "conv"), size=(5, 5))
    sheet = Sheet()
    read_together([group], [[module.weight.detach()]], [[(scale, None)]], 1, sheet)
    for _ in range(40):  # two directions lie close together at the top
        sheet = Sheet()
        read_together([group], [[module.weight.detach()]], [[(scale, None)]], 10, sheet)
    fetch_numbers(sheet, lambda sheet, reading, proving: None).deliver()
    scaled = module.weight.detach().double() * (scale[:, None, None, None] if per_channel else scale)
    true = float(torch.linalg.matrix_norm(dense_blocks(scaled, spec_of(module, (5, 5))), 2).max())
    assert sheet.layers[0]["folded"] == pytest.approx(true, rel=1e-3)


def test_a_pointwise_convolution_is_its_matrix() -> None:
    assert is_pointwise(nn.Conv2d(3, 4, 1, stride=2))
    assert not is_pointwise(nn.Conv2d(3, 4, 1, padding=1))
    assert not is_pointwise(nn.Conv2d(4, 4, 1, groups=2))
    assert not is_pointwise(nn.Conv2d(3, 4, 3))
    module, norms = nn.Conv2d(3, 4, 1), Norms()
    norms.follow({0: (WatchedLayer("conv", module, "weight", "conv"), module.weight.detach())}, {})
    (group,) = norms.groups
    assert proved(group, [module.weight.detach()])[0][1] == pytest.approx(truth(module.weight.detach()), rel=1e-6)


def test_a_larger_input_is_followed_anew() -> None:
    torch.manual_seed(0)
    module = nn.Conv2d(2, 3, 3, padding=1)
    layer, weight, norms = WatchedLayer("conv", module, "weight", "conv"), module.weight.detach(), Norms()
    for size in ((3, 3), (12, 12)):
        norms.follow({0: (layer, weight)}, {module: size})
        (group,) = norms.groups
        true = float(torch.linalg.matrix_norm(dense_blocks(weight.double(), spec_of(module, size)), 2).max())
        lower, upper = proved(group, [weight])[0]
        assert lower <= true <= upper <= 1.1 * true


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_never_rounds_a_bound_down(dtype: torch.dtype) -> None:
    """A matrix of one row has the norm of its row, and nothing to spare over its Frobenius norm."""
    for seed in range(60):
        torch.manual_seed(seed)
        weight = torch.randn(1, 10).to(dtype)
        lower, upper = proved(Group("key", [0]), [weight])[0]
        assert lower <= float(weight.double().norm()) <= upper


def test_a_proof_of_less_would_be_seen() -> None:
    """The ends are so tight that a Frobenius norm or a value a few per cent off would break them."""
    torch.manual_seed(0)
    weight = torch.randn(128, 128)
    lower, upper = proved(Group("key", [0]), [weight])[0]
    assert upper < 1.05 * truth(weight) < float(weight.norm()) and lower > 0.96 * truth(weight)


def test_small_matrices_that_have_no_eigenvectors_by_lapack_have_some_by_squaring(monkeypatch) -> None:
    def refuse(_: torch.Tensor) -> None:
        raise torch.linalg.LinAlgError("ill-conditioned")

    torch.manual_seed(0)
    rows = torch.randn(4, 3, 7, dtype=torch.float64)
    gram = rows @ rows.mT
    usual = warm._top_vector(gram)
    monkeypatch.setattr(torch.linalg, "eigh", refuse)
    assert torch.allclose((warm._top_vector(gram) * usual).sum(-1).abs(), torch.ones(4, dtype=torch.float64), atol=1e-6)
