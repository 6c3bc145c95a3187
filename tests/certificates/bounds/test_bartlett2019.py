from __future__ import annotations

import math

import pytest

from normgauge.certificates.bounds import bartlett2019

WEIGHTS = [784 * 256 + 256, 256 * 257, 256 * 257, 257 * 10]  # the MLP of GENERALIZATION 6.6, 335k weights


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
