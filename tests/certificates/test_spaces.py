"""The cell rows in input space and behind an encoder."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from normgauge.certificates import spaces
from normgauge.certificates.case import Case
from normgauge.certificates.facts.cells import k_means
from normgauge.certificates.facts.sample import DataSample, model_outputs
from normgauge.certificates.facts.slopes import ROOT2, slopes_of
from normgauge.certificates.spaces import Loss, cell_rows, encoded_sample, local_curve, measure_nearby, only_linear
from normgauge.core.certificate import NETWORK, Consumed, Row, RowKind
from normgauge.core.errors import InputError
from normgauge.lab.training import train
from normgauge.lab.zoo import Split
from normgauge.lab.zoo.data import digits

RAMP, CLIPPED = Loss("ramp", 1.0), Loss("cross-entropy", 4.0)


def case_of(model: nn.Module, data: Any, fresh: Any = None, encoder: nn.Module | None = None) -> Case:
    sample, held = DataSample.of(data, "train"), None if fresh is None else DataSample.of(fresh, "holdout")
    logits = model_outputs(model.eval(), sample)
    return Case(
        model,
        sample,
        logits,
        holdout=held,
        holdout_logits=None if held is None else model_outputs(model, held),
        encoder=encoder,
    )


def rows_of(case: Case, loss: Loss = RAMP, *, cells: int = 1, **options: Any) -> dict[str, Row]:
    slopes = slopes_of(case.model, case.train.take(range(16)))
    return {row.key: row for row in cell_rows(case, slopes, loss, options.get("partition"), cells)}


def linear(*rows: Tensor) -> nn.Linear:
    with torch.random.fork_rng(devices=[]):
        found = nn.Linear(len(rows[0]), len(rows), bias=False)
    with torch.no_grad():
        found.weight.copy_(torch.stack(rows))
    return found


def small() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10))


def test_cells_are_made_from_fresh_inputs() -> None:
    found = rows_of(case_of(small(), digits("train"), digits("test")), cells=4)
    slack = dict(found["theorem20.variation"].terms)["slack of the cells"]
    assert slack == pytest.approx(0.5 * math.sqrt(39 / 1442) + math.sqrt(math.log(40) / 2884))
    with pytest.raises(InputError, match="give unlabeled= or holdout="):
        rows_of(case_of(small(), digits("train")), cells=4)


def test_a_partition_made_from_the_sample_is_refused() -> None:
    case = case_of(small(), digits("train"), digits("test"))
    with pytest.raises(InputError, match="made from 100 of the training samples"):
        rows_of(case, partition=k_means(digits("train").inputs[:100], 5))
    assert rows_of(case, partition=k_means(digits("test").inputs, 5))["theorem20.variation"].kind is RowKind.VACUOUS


def test_a_loss_without_a_range_needs_a_clip() -> None:
    case = case_of(small(), digits("train").first(200))
    row = rows_of(case, Loss("cross-entropy", None))["theorem20.variation"]
    assert row.kind is RowKind.NOT_APPLICABLE and "clip=C" in row.reason
    clipped = rows_of(case, CLIPPED)["theorem20.variation"]
    assert clipped.kind is RowKind.VACUOUS and clipped.limit == 4.0 and clipped.quantity == "clipped cross-entropy"


@pytest.fixture(scope="module")
def encoder() -> nn.Module:
    """Class probabilities of a network that saw 700 digits."""
    first = digits("train")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10))
        train(net, Split(first.inputs[:700], first.labels[:700]), epochs=25, lr=3e-3)
    return nn.Sequential(net, nn.Softmax(1)).eval()


def rest() -> Split:
    return Split(digits("train").inputs[700:], digits("train").labels[700:])


def test_features_behind_an_encoder(encoder: nn.Module) -> None:
    """An encoder that never saw the sample and a linear head: Theorem 20 says something on features only."""
    model = nn.Sequential(encoder, linear(*torch.eye(10)))
    rows = rows_of(case_of(model, rest(), digits("test"), encoder))
    assert rows["theorem20.variation"].kind is RowKind.VACUOUS
    row = rows["features.theorem20.variation"]
    assert row.kind is RowKind.BOUND and row.value is not None and 0.02 < row.value < 0.9
    assert "the encoder never saw a sample of train" in row.condition and Consumed.OTHER in row.consumed
    assert "disguise" in row.reason
    plain, through = rows["features.encoder_holdout"], rows["features.disagreement"]
    assert plain.kind is through.kind is RowKind.BOUND and plain.about != NETWORK == through.about
    assert plain.value < through.value < row.value  # type: ignore[operator]
    assert rows["features.theorem20.published"].kind is RowKind.VACUOUS  # 742 samples are too few for its slack
    assert rows["features.theorem20.kl"].kind is RowKind.BOUND


def test_a_steep_head_says_nothing(encoder: nn.Module) -> None:
    model = nn.Sequential(encoder, nn.Linear(10, 10), nn.LayerNorm(10))
    found = rows_of(case_of(model, rest(), digits("test"), encoder))
    assert found["features.theorem20.kl"].kind is RowKind.VACUOUS


def test_cross_entropy_has_its_own_slope_in_feature_space() -> None:
    """Coin flips learnt by heart with large weights: nothing may be promised, and the margin's slope would."""
    for seed in range(5):
        g = torch.Generator().manual_seed(seed)
        x = torch.nn.functional.normalize(torch.randn(400, 500, generator=g)) * 0.02
        y = torch.randint(0, 2, (400,), generator=g)
        w = torch.linalg.lstsq(x.double(), (2 * y - 1).double()[:, None] * 20).solution[:, 0].float()
        model = nn.Sequential(nn.Identity(), linear(-w / 2, w / 2))
        found = rows_of(case_of(model, (x, y), encoder=model[0]), CLIPPED).values()
        rows = [r for r in found if r.quantity == "clipped cross-entropy" and r.family == "feature cells"]
        assert rows and not any(r.kind is RowKind.BOUND and r.value < 2 for r in rows)  # type: ignore[operator]
    model = nn.Sequential(nn.Identity(), linear(*0.004 * torch.randn(2, 500, generator=g)))
    found = rows_of(case_of(model, (x, y), encoder=model[0]), CLIPPED)
    assert found["features.theorem20.variation"].kind is RowKind.BOUND  # nothing is won by refusing


def test_features_are_vectors_with_the_labels_of_their_samples() -> None:
    images = DataSample(torch.randn(5, 1, 4, 4), torch.arange(5))
    pool = nn.AvgPool2d(2)
    found = encoded_sample(pool, images)
    assert found.inputs is not None and torch.equal(found.inputs, pool(images.inputs).flatten(1))
    assert torch.equal(found.truth, images.truth)


def test_a_head_is_linear_only_where_nothing_else_computes() -> None:
    line = nn.Linear(3, 2)
    assert only_linear(nn.Sequential(nn.Flatten(), nn.Dropout(), line)) is line
    assert only_linear(nn.Sequential(line, nn.ReLU())) is only_linear(nn.Sequential(line, nn.Linear(2, 2))) is None
    line.register_forward_hook(lambda module, args, output: 2 * output)
    assert only_linear(nn.Sequential(line)) is None


def test_the_curve_of_a_linear_map_is_flat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # all the radii there are
    model = linear(torch.tensor([3.0, 0.0]), torch.tensor([0.0, 4.0]))
    points = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    case = case_of(model, (points[:20], torch.arange(20) % 2), (points[20:], torch.arange(20) % 2))
    slopes = slopes_of(model, points[:4])
    near = measure_nearby(case, slopes)
    assert near is not None and near.slopes is not None and len(near.centres) == 20
    apart = torch.cdist(points[20:].double(), points[20:].double()).fill_diagonal_(math.inf)
    assert near.unit == pytest.approx(float(apart.min(1).values.median()))
    (curve,) = local_curve(slopes, near)
    assert curve.x == spaces.RADII and len(spaces.RADII) == 7
    assert len(curve.lines) == 4
    for _, line in curve.lines:
        assert line == pytest.approx([4 * ROOT2] * 7, rel=1e-4)
    assert measure_nearby(case_of(model, (points[:20], torch.arange(20) % 2)), slopes) is None
