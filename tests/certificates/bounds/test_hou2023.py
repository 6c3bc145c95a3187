from __future__ import annotations

import math

import pytest

from normgauge.certificates.bounds.hou2023 import transport


def test_transport_by_hand() -> None:
    found = transport([0.25, 0.75], [2.0, 1.0], [0.5, 4.0], 9, 900, 0.04)
    assert dict(found.terms)["transport"] == pytest.approx(0.25 * 2 + 0.75 * 4)  # max(1, 0.5) in the first cell
    assert dict(found.terms)["worst cell"] == pytest.approx(4 * math.sqrt(math.log(100) / 900))
    assert dict(found.terms)["cells"] == pytest.approx(0.1)
    assert found.value == pytest.approx(sum(term for _, term in found.terms))
