"""Certified radii in words, tables and curves: nothing shown promises more than was certified."""

from __future__ import annotations

import dataclasses
import math

from normgauge.core.bound import Evidence
from normgauge.core.certified import judged_radius
from normgauge.render.certified import accuracy_curves, radii_html, radii_notebook, radii_sentences, sample_grid, stairs
from tests.core.test_certified import FOUR, made, sample


def test_the_verdict_counts_and_rounds_towards_safety():
    found = made(sample(0, 0.12399, 0.5001), sample(1, 0.0, None, predicted=0, reason="already wrong"))
    said = radii_sentences(found)
    assert said[0] == "1 of 2 predictions is certified (1 proved); half of those cannot change within 0.123."
    assert said[1:3] == ["The attack changed 1, half of them within 0.501.", "1 not certified: already wrong."]
    assert said[3] == "Chance that any radius is wrong: at most 1e-08."


def test_a_contradiction_stands_first():
    known = {"index": 7, "label": None, "predicted": 1, "margin": 1.0, "rounding": 0.0, "method": "boast"}
    found = made(sample(0, 0.1, 0.2), judged_radius(0.3, 0.2, **known, evidence=Evidence.PROVED))
    assert radii_sentences(found)[0].startswith("Sample 7: REFUTED: boast certified 0.3")
    assert str(found).splitlines()[1].startswith("Sample 7: REFUTED")


def test_the_text_has_both_accuracies_and_says_how_many_samples_it_leaves_out():
    many = made(*(sample(i, 0.01 * (i + 1), None) for i in range(20)))
    assert "and 8 more; --json and --html have them all" in str(many)
    assert "verified" in str(FOUR) and "left by the attack" in str(FOUR) and "why not" in sample_grid(FOUR).headers
    assert "label" not in sample_grid(made(sample(0, 0.1, None, label=None))).headers


def test_without_an_attack_and_without_anything_certified():
    bare = dataclasses.replace(made(sample(0, 0.0, None, reason="no bound", evidence=Evidence.UNKNOWN)), attack={})
    assert "not attacked" in str(bare) and "0 of 1 prediction are certified." in str(bare)
    assert accuracy_curves(bare) == "" and "<svg" not in radii_html(bare)
    endless = made(sample(0, math.inf, None))
    assert "cannot change within inf" in " ".join(str(endless).split()) and accuracy_curves(endless) == ""


def test_the_stairs_fall_where_the_share_does():
    assert stairs(FOUR.verified_accuracy, [0.05, 0.1, 0.2, 0.3, 0.4]) == [
        (0.05, 75.0), (0.1, 75.0), (0.1, 50.0), (0.2, 50.0), (0.2, 25.0), (0.3, 25.0), (0.3, 0.0), (0.4, 0.0),
    ]  # fmt: skip


def test_the_page_has_both_curves_and_nothing_from_outside():
    page = radii_html(dataclasses.replace(FOUR, model="<script>x</script>"))
    assert (
        page.count("<svg") == 2
        and page.count('<polyline class="reached"') == page.count('<polyline class="reference"') == 2
    )
    assert "<script>x" not in page and "already wrong" in page
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")
    assert "<svg" in radii_notebook(FOUR) and FOUR._repr_html_() == radii_notebook(FOUR)
