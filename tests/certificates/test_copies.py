import math

import pytest
import torch
from torch import Tensor, nn

import normgauge as ng
from normgauge.certificates import copies
from normgauge.certificates.copies import refuse_leak, refuse_near_copies
from normgauge.certificates.facts.sample import DataSample
from normgauge.core.certificate import Certificate, RowKind
from normgauge.core.errors import InputError
from normgauge.lab.zoo.data import digits


@pytest.fixture
def train() -> Tensor:
    return digits("train").inputs


@pytest.fixture
def test() -> Tensor:
    return digits("test").inputs


def discrete(count: int, seed: int) -> list[int]:
    """Half of the draws are among 20 frequent values."""
    draw = torch.Generator().manual_seed(seed)
    frequent = torch.rand(count, generator=draw) < 0.5
    rare = torch.randint(20, 10**6, (count,), generator=draw)
    found: list[int] = torch.where(frequent, torch.randint(20, (count,), generator=draw), rare).tolist()
    return found


def test_equal_records_that_nature_makes_pass_with_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "SPLITS", 199)  # the smallest number that can reach the level
    refused = 0
    for seed in range(40):
        try:
            (said,) = refuse_leak(discrete(300, 2 * seed), discrete(200, 2 * seed + 1), "holdout")
            assert "no more than chance makes" in said
        except InputError:
            refused += 1
    assert refused <= 2  # binomial 99 % limit of 1 %


def test_records_that_were_put_there_are_refused() -> None:
    train, fresh = discrete(600, 0), discrete(600, 1)
    leaked = [record for record in train if record >= 20][:25]
    with pytest.raises(
        InputError, match=r"of its 600 samples are training samples too.* a leak\. Split the data again"
    ):
        refuse_leak(train, fresh[:575] + leaked, "holdout")
    with pytest.raises(InputError, match="of its 600 samples are exact copies of others in it, more than the"):
        refuse_leak(train, fresh[:580] + [-k // 2 for k in range(20)], "holdout")
    assert len(refuse_leak(train, fresh[:580] + [-k // 2 for k in range(20)], "holdout", independent=False)) == 1


def test_without_repeats_in_train_a_few_are_enough() -> None:
    assert refuse_leak(range(1000), range(1000, 1200), "unlabeled") == []
    with pytest.raises(InputError, match="unlabeled: 5 of its 205 samples are training samples too"):
        refuse_leak(range(1000), [*range(1000, 1200), *range(5)], "unlabeled")
    with pytest.raises(InputError, match="5 of its 205 samples are exact copies"):
        refuse_leak(range(1000), [*range(1000, 1200), *range(1000, 1005)], "unlabeled")


def certified(x: Tensor, y: Tensor, hx: Tensor, hy: Tensor) -> Certificate:
    return ng.certify(nn.Linear(x.shape[1], 2), (x, y), (hx, hy), epochs=0)


def test_a_record_is_an_input_with_its_label_and_a_zero_has_no_sign() -> None:
    torch.manual_seed(0)
    x, zeros = torch.randn(100, 3), torch.zeros(100, 1)
    y = torch.randint(2, (100,))
    with pytest.raises(InputError, match="holdout: 100 of its 100 samples are training samples too"):
        certified(torch.cat([x, zeros], 1), y, torch.cat([x, -zeros], 1), y)
    codes = torch.randint(3, (200, 2)).float()
    labels = torch.randint(2, (200,))
    found = certified(codes[:100], labels[:100], codes[100:], labels[100:])
    assert any("no more than chance makes" in said for said in found.warnings)
    assert found.row("holdout.clopper_pearson").kind is RowKind.BOUND


def test_noisy_copies_of_the_training_set_are_refused(train: Tensor, test: Tensor) -> None:
    drawn = DataSample(train, None)
    assert refuse_near_copies(drawn, DataSample(test, None), "holdout") == []
    late = DataSample(torch.cat([test, train[:60] + 1e-4]), None)  # past the first three hundred
    with pytest.raises(InputError, match=r"holdout: 60 of its 415 samples are nearly training samples .* a leak"):
        refuse_near_copies(drawn, late, "holdout")
    assert refuse_near_copies(drawn, DataSample(train[:1] + 1e-4, None), "unlabeled")[0].startswith(
        "unlabeled: 1 of its 1"
    )


@pytest.mark.parametrize("dimensions", [1, 2])
def test_independent_draws_of_a_dense_source_need_no_word(dimensions: int) -> None:
    said = []
    for seed in range(20):
        points = torch.randn(3000, dimensions, generator=torch.Generator().manual_seed(seed))
        said += refuse_near_copies(DataSample(points[:2000], None), DataSample(points[2000:], None), "holdout")
    assert len(said) <= 1


def test_copies_dealt_to_both_sides_get_a_word() -> None:
    draw = torch.Generator().manual_seed(0)
    for noise in (1e-6, 1e-3, 0.02):  # the last is at half of what counts as near
        scenes = torch.randn(400, 20, generator=draw).repeat(2, 1)
        frames = (scenes + noise * torch.randn(800, 20, generator=draw))[torch.randperm(800, generator=draw)]
        (said,) = refuse_near_copies(DataSample(frames[:500], None), DataSample(frames[500:], None), "holdout")
        assert "nearly training samples" in said and "training samples are that near to others" in said


def test_copies_in_a_dense_source_are_refused() -> None:
    points = torch.randn(3000, 2, generator=torch.Generator().manual_seed(0))
    points[2000:2100] = points[:100] * (1 + 1e-5)
    with pytest.raises(InputError, match=r"are nearly training samples .* a leak"):
        refuse_near_copies(DataSample(points[:2000], None), DataSample(points[2000:], None), "holdout")


def test_every_pair_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = torch.Generator().manual_seed(0)
    drawn, fresh = torch.randn(900, 50, generator=draw), torch.randn(400, 50, generator=draw)
    fresh[::7] = drawn[-len(fresh[::7]) :] * (1 + 1e-5)
    monkeypatch.setattr(copies, "BLOCK", (64, 128))
    with pytest.raises(InputError, match=f"{math.ceil(400 / 7)} of its 400 samples"):
        refuse_near_copies(DataSample(drawn, None), DataSample(fresh, None), "holdout")
    monkeypatch.setattr(copies, "PAIRS", 400 * 90)
    fresh[::7] = torch.randn(len(fresh[::7]), 50, generator=draw)
    (said,) = refuse_near_copies(DataSample(drawn, None), DataSample(fresh, None), "holdout")
    assert said.endswith("among 90 of the 900 training samples only")
