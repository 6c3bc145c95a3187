"""Facts: which normalizers hold the slope down, and which layer owns the gap."""

from __future__ import annotations

import math

import pytest

import normgauge as ng
from tests.advice.nets import net


def test_facts_and_problems_are_kept_apart(batch):
    advice = ng.advise(net("layer"), batch)
    assert advice.problems == () and [r.kind for r in advice.facts] == ["control", "gap"]
    assert list(advice) == list(advice.facts) and len(advice) == 2
    text = str(advice)
    assert text.startswith("MLP, eval mode: no problem found\nfacts\n")
    control = advice.facts[0]
    assert control.layer in control.sentence and "as they are written" in control.sentence
    gains = {r.name: r.gain.hi / math.log(10) for r in ng.gauge(net("layer"), batch, scope="point").layers}
    assert control.numbers[control.layer] == pytest.approx(gains[control.layer], abs=1e-3)
