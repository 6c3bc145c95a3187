from __future__ import annotations

import math

import pytest

from normgauge.certificates.bounds.cells import tau_published, tau_xu_mannor
from normgauge.certificates.bounds.parts import Parts
from normgauge.certificates.bounds.xu_mannor2012 import robust_bound


def xu_mannor(loss: float, change: float, cells: int, m: int, delta: float, limit: float = 1.0) -> Parts:
    return robust_bound(loss, change, tau_xu_mannor(cells, m, delta), limit)


def kawaguchi(loss: float, change: float, met: int, cells: int, m: int, delta: float, limit: float = 1.0) -> Parts:
    return robust_bound(loss, change, tau_published(met, cells, m, delta), limit)


def test_xu_mannor_by_hand() -> None:
    found = xu_mannor(0.05, 0.1, 100, 50_000, 0.05, limit=2.0)
    assert dict(found.terms)["cells"] == pytest.approx(2 * math.sqrt((200 * math.log(2) + 2 * math.log(20)) / 50_000))
    assert found.value == pytest.approx(0.15 + dict(found.terms)["cells"])


@pytest.mark.parametrize(("cells", "met", "printed"), [(10, 10, 0.086), (100, 98, 0.340), (1000, 746, 1.276)])
def test_kawaguchi_as_printed(cells: int, met: int, printed: float) -> None:
    assert kawaguchi(0.0, 0.0, met, cells, 50_000, 0.05).value == pytest.approx(printed, abs=6e-4)
    assert kawaguchi(0.0, 0.0, met, cells, 50_000, 0.05, limit=3.0).value == pytest.approx(3 * printed, abs=2e-3)


def test_monotone() -> None:
    base = kawaguchi(0.1, 0.1, 50, 100, 10_000, 0.05).value
    assert kawaguchi(0.2, 0.1, 50, 100, 10_000, 0.05).value == pytest.approx(base + 0.1)
    assert kawaguchi(0.1, 0.2, 50, 100, 10_000, 0.05).value == pytest.approx(base + 0.1)
    assert kawaguchi(0.1, 0.1, 51, 100, 10_000, 0.05).value > base
    assert kawaguchi(0.1, 0.1, 50, 101, 10_000, 0.05).value > base
    assert kawaguchi(0.1, 0.1, 50, 100, 10_001, 0.05).value < base
    assert xu_mannor(0.1, 0.1, 101, 10_000, 0.05).value > xu_mannor(0.1, 0.1, 100, 10_000, 0.05).value
