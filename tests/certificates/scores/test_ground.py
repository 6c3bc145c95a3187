from __future__ import annotations

from normgauge.certificates.scores import Ground
from normgauge.certificates.scores.ground import ROUGH, SEARCH
from tests.certificates.scores.made import case, sample, two_layers


def test_a_large_network_is_shown_fewer_samples_and_searched_less(monkeypatch):
    net, data = two_layers(), sample(400)
    small = Ground(case(net, data))
    assert len(small.inputs) == 400 and small.search == SEARCH
    monkeypatch.setattr("normgauge.certificates.scores.norms.multiplications", lambda *_: 3.2e7)
    large = Ground(case(net, data))
    assert len(large.inputs) == 62 and large.search == ROUGH
    monkeypatch.setattr("normgauge.certificates.scores.norms.multiplications", lambda *_: 1e12)
    assert len(Ground(case(net, data)).inputs) == 50
