from __future__ import annotations

import math

import pytest

from normgauge.certificates.bounds import bartlett2017, bartlett2019, golowich2018, neyshabur2018
from normgauge.certificates.bounds.grid import round_up
from normgauge.certificates.bounds.margin import rademacher_bound

WEIGHTS = [784 * 256 + 256, 256 * 257, 256 * 257, 257 * 10]  # the MLP of GENERALIZATION 6.6, 335k weights


def test_the_grid_shares_all_of_delta() -> None:
    shares = [math.exp(-round_up(j * math.log(2) / 8)[1]) for j in range(-4000, 4001)]
    assert 0.999 < math.fsum(shares) < 1.0


@pytest.mark.parametrize("value", [1e-9, 0.3, 1.0, 1.0000001, 2.0, 7.7, 1e40])
def test_rounding_is_upwards_by_at_most_a_step(value: float) -> None:
    point, price = round_up(math.log(value))
    assert 0.0 <= point - math.log(value) <= math.log(2) / 8 * (1 + 1e-9)
    assert price >= math.log(3)


def test_a_hair_above_a_point_is_rounded_up() -> None:
    point = 40 * math.log(2) / 8
    assert round_up(point)[0] == point
    assert round_up(math.nextafter(point, math.inf))[0] == 41 * math.log(2) / 8


def test_rounding_at_the_ends() -> None:
    assert round_up(math.inf) == (math.inf, math.inf)
    assert round_up(-math.inf)[0] < -1e5
    assert round_up(0.0) == (0.0, math.log(3.0))


def test_vc_of_one_layer_and_of_the_mlp() -> None:
    assert bartlett2019.vc_dimension([3], [1]) == pytest.approx(
        1 + 3 * math.log2(4 * math.e * math.log2(2 * math.e)), rel=1e-12
    )
    s = 256 + 2 * 256 + 3 * 256 + 4 * 9
    through = 4 * WEIGHTS[0] + 3 * WEIGHTS[1] + 2 * WEIGHTS[2] + WEIGHTS[3]
    vc = bartlett2019.vc_dimension(WEIGHTS, [256, 256, 256, 9])
    assert vc == pytest.approx(4 + through * math.log2(4 * math.e * s * math.log2(2 * math.e * s)), rel=1e-12)
    assert 10 < math.sqrt(vc / 50_000) < 40  # 6.6 prints 20


def test_vc_slack() -> None:
    assert bartlett2019.slack(100.0, 1_000_000, 0.05) == pytest.approx(
        math.sqrt((200 * math.log(2 * math.e * 10_000) + math.log(40)) / 1_000_000)
    )
    assert bartlett2019.slack(100.0, 100, 0.05) == math.inf
    assert bartlett2019.slack(100.0, 10, 0.05) == math.inf  # 2em/VC < 1 would give a negative number
    assert bartlett2019.vc_dimension_bound(0.1, 100.0, 1_000_000, 0.05).value > 0.1 + bartlett2019.slack(
        100.0, 1_100_000, 0.05
    )


@pytest.mark.parametrize("vc", [1.0, 5.0, 100.0])
@pytest.mark.parametrize("m", [100, 10_000, 1_000_000])
def test_vc_slack_covers_vapniks(vc: float, m: int) -> None:
    found = bartlett2019.slack(vc, m, 0.05)
    proved = math.sqrt((vc * math.log(2 * math.e * m / vc) + math.log(80)) / m) + 1 / m
    assert found >= min(1.0, proved)


def test_frobenius_by_hand() -> None:
    log_data = math.log(9.0 * math.sqrt(50_000))
    unit = golowich2018.log_rademacher(log_data, 4, 50_000)
    assert math.exp(unit) == pytest.approx(9 * (math.sqrt(8 * math.log(2)) + 1) / math.sqrt(50_000))
    assert math.exp(golowich2018.log_rademacher_2015(log_data, 4, 50_000)) == pytest.approx(8 * 9 / math.sqrt(50_000))
    found = rademacher_bound(0.02, unit, math.log(2.0**10), 10, 50_000, 0.05)
    assert dict(found.terms)["capacity"] == pytest.approx(40 * 2**10 * math.exp(unit), rel=1e-9)
    price = math.log(1.5 * 81 * 82)
    assert dict(found.terms)["deviation"] == pytest.approx(3 * math.sqrt((math.log(40) + price) / 100_000))
    assert found.value == pytest.approx(0.02 + dict(found.terms)["capacity"] + dict(found.terms)["deviation"])


def test_spectral_by_hand() -> None:
    logs = [math.log(4.0), math.log(8.0)]
    found = bartlett2017.spectral_margin_bound(0.02, math.log(2.0), logs, math.log(100.0), 64, 1000, 0.05)
    whole = 2 * (4 ** (2 / 3) + 8 ** (2 / 3)) ** 1.5
    capacity = 72 * math.sqrt(2) * 100 * math.sqrt(math.log(2 * 64**2)) * math.log(1000) / 1000 * whole
    assert dict(found.terms)["capacity"] == pytest.approx(capacity, rel=1e-9)
    assert dict(found.terms)["cover"] == pytest.approx(8 / 1000**1.5)
    price = math.log(1.5 * 9 * 10) + math.log(1.5 * 17 * 18) + math.log(1.5 * 25 * 26)
    assert dict(found.terms)["deviation"] == pytest.approx(3 * math.sqrt((math.log(40) + price) / 2000))


def test_pac_bayes_spectral_by_hand() -> None:
    depth, width, m = 3, 50, 10_000
    logs = [math.log(2.0), math.log(3.0), math.log(1.0)]
    divergence = 42**2 * math.e**2 * 9 * 50 * math.log(600) * (8.0 * 4.0) ** 2 * 14 / 2
    assert neyshabur2018.log_divergence(math.log(32.0), logs, width) == pytest.approx(math.log(divergence), rel=1e-12)
    found = neyshabur2018.spectral_pac_bayes_bound(0.02, math.log(4.0), math.log(8.0), logs, width, m, 0.05)
    rest = math.log(depth * m ** (1 / 6)) + math.log(6 * m / 0.025) + math.log(1.5 * 25 * 26)
    assert found.value == pytest.approx(0.02 + 4 * math.sqrt((divergence + rest) / (m - 1)) + math.log(40) / m)
    assert dict(found.terms)["slack"] == pytest.approx(4 * math.sqrt(rest / (m - 1)))
    assert dict(found.terms)["inputs beyond all seen"] == pytest.approx(math.log(2 / 0.05) / m)


def test_noise_constant_is_what_the_proof_needs() -> None:
    assert 4 * math.sqrt(2) * math.e**2 <= 42


@pytest.mark.parametrize("rows", ["golowich", "bartlett", "neyshabur"])
def test_norms_beyond_floats_are_infinite_not_wrong(rows: str) -> None:
    if rows == "golowich":
        value = rademacher_bound(0.0, 0.0, 2000.0, 10, 1000, 0.05).value
    elif rows == "bartlett":
        value = bartlett2017.spectral_margin_bound(0.0, 2000.0, [1.0, 1.0], 1.0, 10, 1000, 0.05).value
    else:
        value = neyshabur2018.spectral_pac_bayes_bound(0.0, 2000.0, 0.0, [1.0, 1.0], 10, 1000, 0.05).value
    assert value == math.inf
    assert bartlett2017.log_sum([0.0, math.inf]) == math.inf


def test_all_grow_the_way_they_must() -> None:
    def spectral(**changes: float) -> float:
        plain = {"size": 1.0, "ratio": 1.0, "data": 1.0, "width": 64, "m": 1000, "delta": 0.05, **changes}
        logs = [plain["ratio"], 1.0]
        return bartlett2017.spectral_margin_bound(
            0.0, plain["size"], logs, plain["data"], int(plain["width"]), int(plain["m"]), plain["delta"]
        ).value

    def noisy(**changes: float) -> float:
        plain = {"size": 1.0, "ratio": 1.0, "data": 1.0, "width": 64, "m": 1000, "delta": 0.05, **changes}
        logs = [plain["ratio"], 1.0]
        return neyshabur2018.spectral_pac_bayes_bound(
            0.0, plain["size"], plain["data"], logs, int(plain["width"]), int(plain["m"]), plain["delta"]
        ).value

    for bound in (spectral, noisy):
        base = bound()
        assert bound(size=1.2) > base and bound(ratio=1.2) > base and bound(data=1.2) > base
        assert bound(width=65) > base and bound(m=1100) < base and bound(delta=0.06) < base
