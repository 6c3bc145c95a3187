from __future__ import annotations

import re

from normgauge.render.panel import loss_section
from tests.made import reading
from tests.render.networks import endless, hostile, residual
from tests.render.test_page import parsed


def test_a_notebook_shows_verdict_waterfall_and_layers():
    shown = residual()._repr_html_()
    assert parsed(shown).seen >= {"div", "style", "svg", "table", "details"}
    assert "at most 39.82 times as much" in shown and "block.norm" in shown


def test_no_rule_reaches_the_rest_of_the_notebook_and_nothing_runs():
    shown = residual()._repr_html_()
    style = re.search(r"<style>(.*?)</style>", shown, re.DOTALL)
    assert style is not None
    selectors = [s.strip() for rule in re.findall(r"([^{}]+)\{", style[1]) for s in rule.split(",")]
    assert len(selectors) > 20 and all(s.startswith(".normgauge-reading") for s in selectors)
    assert "script" not in parsed(shown).seen and "id=" not in shown
    assert not re.search(r"(src|href)=|url\(|@import", shown)


def test_text_takes_the_colour_of_the_notebook():
    shown = residual()._repr_html_()
    assert ".fig text { font" in shown and "fill: currentColor" in shown and "var(" not in shown


def test_hostile_and_bare_readings_are_shown_too():
    assert "<img" not in hostile()._repr_html_()
    assert "No finite bound holds" in endless()._repr_html_()
    assert "<svg" not in reading(layers=())._repr_html_()


def test_no_loss_is_told_of_an_output_that_holds_no_scores():
    assert "cross_entropy" in loss_section(reading(notes=("measured output: logits; not measured: hidden",)))
    assert loss_section(reading(notes=("measured output: sentence_embedding; not measured: logits",))) == ""
