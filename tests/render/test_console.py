from __future__ import annotations

import io
import math

import pytest
import torch

from normgauge.core.bound import Evidence, Scope
from normgauge.core.compare import compare_readings
from normgauge.core.reading import Finding
from normgauge.core.spelled import LN10
from normgauge.instrument.measure import gauge
from normgauge.render.console import as_text, draw_blocks, printed_products, reading_blocks, reading_text
from normgauge.render.difference import product_changes
from normgauge.render.table import Grid
from normgauge.render.terminal import _cell_lines, grid_lines
from tests.made import layer, reading


def scopes():
    return [
        reading(),
        reading(scope=Scope.parse("ball:0.1"), log_upper=3 * LN10),
        reading(scope=Scope.parse("global"), log_upper=9 * LN10, log_lower=1.5 * LN10),
    ]


def test_every_number_of_a_layer_is_on_its_row():
    lines = reading_text(reading()).splitlines()
    assert lines[0] == "MLP, mode eval, 1 sample"
    row = next(line for line in lines if line.startswith("f.1"))
    assert row.split()[:6] == ["f.1", "BatchNorm1d", "-0.50", "-0.25", "-0.1666", "-1.00"]
    assert "0.25…4" in row and "ε floor" in " ".join(lines)


def test_the_bracket_names_upper_lower_gap_and_owner():
    shown = reading_text(reading())
    assert "log10 upper 2.00 (folded 2.50), lower 1.25, gap 0.75 decades" in shown
    assert "head (Linear) has the most slack, 0.44" in " ".join(shown.split())


def test_several_scopes_give_labelled_totals_with_the_point_first():
    stream = io.StringIO()
    draw_blocks(reading_blocks(scopes()), stream, 120)
    totals = stream.getvalue().splitlines()[5:9]
    assert [line.split("  ")[0] for line in totals] == [
        "at most, at the samples",
        "at most, within 0.1 of the samples",
        "at most, everywhere",
        "at least, found",
    ]
    assert [line.split()[-3] for line in totals] == ["100", "1,000", "10^9.00", "31.6"]
    assert stream.getvalue().splitlines()[10].startswith("point: The largest")  # the verdict, before the layers


def test_a_note_shared_by_the_scopes_is_told_once():
    stream = io.StringIO()
    draw_blocks(reading_blocks(scopes()), stream, 120)
    assert stream.getvalue().count("Dropout is off") == 1


def test_published_products_are_labelled_gauge_dependent():
    assert "Published products depend on the gauge: P_w 10^0.80, Π 1/σ 10^0.50 (--all" in reading_text(reading())
    shown = reading_text(reading(), every=True)
    label, _, table = shown.partition("gauge-dependent")
    assert " ".join(label.split()).endswith("Published quantities, with σ of the samples (scope point):")
    assert "Than 2025 (arXiv 2511.00958)" in " ".join(table.split())
    assert "P_w = Π ‖W‖" in table and "Π 1/σ (smallest σ)" in table and "prod_inv" not in table


def test_published_names_the_renderer_does_not_know_are_shown_as_they_are():
    products = {"log10_new": None, "log10_other": {"a": 1.5}, "log10_theorem9_published": math.inf}
    shown = reading_text(reading(published=products), every=True)
    assert "new" in shown and "other, a" in shown and "(Theorem 9)" in shown


def test_the_totals_say_what_was_found_in_each_scope():
    stream = io.StringIO()
    draw_blocks(reading_blocks(scopes()), stream, 120)
    assert [line.split()[-1] for line in stream.getvalue().splitlines()[5:9]] == ["17.78", "17.78", "31.6", "·"]


def test_the_columns_are_explained_under_the_layers():
    told = " ".join(reading_text(reading()).split())
    assert "1 is a factor of ten" in told
    for word in ("gain: ", "folded: ", "balanced: ", "gauges, ", "cumulative: "):
        assert told.count(word) == 1, word


def test_unknown_and_unbounded_parts_are_said_in_words():
    unknown = reading(log_upper=math.inf, evidence=Evidence.UNKNOWN, unknown=(Finding("block.3", "torch.foo"),))
    assert "No upper bound is known at the samples: nothing is known of 1 part." in " ".join(
        reading_text(unknown).split()
    )
    assert "Unknown: block.3: torch.foo." in " ".join(reading_text(unknown).split())
    unbounded = reading(log_upper=math.inf, unbounded=(Finding("gate", "a product of unbounded branches"),))
    assert "No finite bound holds at the samples." in " ".join(reading_text(unbounded).split())
    assert "Unbounded, provably: gate: a product of unbounded branches." in " ".join(reading_text(unbounded).split())


def test_a_long_network_is_summarised_unless_asked():
    many = tuple(layer(f"n{i}", "Linear", 3.0 if i % 10 == 0 else 0.1, i) for i in range(100))
    shown = reading_text(reading(layers=many))
    assert "70 of 100 layers with gains nearer to 1 are not shown (--all shows them)" in " ".join(shown.split())
    assert all(f"n{i} " in shown for i in range(0, 100, 10))
    everything = reading_text(reading(layers=many), every=True)
    assert all(f"n{i} " in everything for i in range(100)) and "not shown" not in everything


def test_markup_in_a_name_is_only_a_name():
    assert "[red]x[/red]" in reading_text(reading(layers=(layer("[red]x[/red]", "Linear", 1.0, 0),)))


def test_a_reading_without_layers_prints():
    shown = reading_text(reading(layers=(), published={}, samples=(), gauges=()))
    assert "Layers" not in shown and "gap 0.75" in shown


@pytest.mark.parametrize("width", [20, 60, 80, 200])
def test_no_number_is_cut_off_on_a_narrow_terminal(width):
    stream = io.StringIO()
    draw_blocks(reading_blocks(scopes(), every=True), stream, width)
    shown = stream.getvalue()
    for word in ("cumulative", "0.25…4", "1,000", "f.1", "-0.16", "0.50"):
        assert word in shown
    assert "root mean square" in " ".join(shown.split())


def test_columns_in_which_nothing_stands_are_left_out():
    bare = reading_text(reading(layers=(layer("a", "Linear", 1.0, 0, log_balanced=None),)))
    assert "folded" in bare and "note" not in bare and "σ" not in bare.split("point:")[0]


def test_no_color_takes_the_styles_away(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setenv("NO_COLOR", "1")
    terminal = Terminal()
    draw_blocks(reading_blocks(scopes()), terminal)
    assert "\x1b" not in terminal.getvalue() and "at most" in terminal.getvalue()


def test_a_terminal_gets_colour_and_a_file_does_not(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal = Terminal()
    draw_blocks(reading_blocks(scopes()), terminal)
    assert "\x1b[1m" in terminal.getvalue()
    assert "\x1b" not in reading_text(reading())


def test_a_long_name_breaks_behind_its_dots():
    assert _cell_lines("encoder.layer.0.attention.self.query", 24) == ["encoder.layer.0.", "attention.self.query"]
    assert _cell_lines("a" * 30, 24) == ["a" * 24, "a" * 6] and _cell_lines("a.b", 24) == ["a.b"]


def test_only_the_product_as_published_bears_the_name_of_corollary_11():
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.LayerNorm(3)).double()
    found = gauge(model, torch.randn(5, 3, dtype=torch.float64), search=False)
    rows = [label for label, _ in printed_products(found).rows if "Corollary 11" in label]
    assert len(rows) == 2 and rows[0].endswith("(not Corollary 11, which has √ε)")
    labels = [row[0] for row in product_changes(compare_readings(found, found)).rows]
    assert set(rows) <= set(labels)
    products = found.to_json()["published"]
    assert products["log10_corollary11_published"] == pytest.approx(products["log10_P_w"] + 2.5)  # ε = 1e-5
    assert found.published_sources["log10_corollary11_published"]["number"] == "Corollary 11"
    assert "not as published" in found.published_sources["log10_corollary11"]["number"]


def test_the_median_sample_is_told_beside_the_steepest():
    rows = tuple({"index": i, "log10_lower": 0.1 * i, "log10_upper": 0.1 * i + 1e-6} for i in range(5))
    said = "That is about the steepest of 5 samples; the median is 1.5849."
    assert said in " ".join(reading_text(reading(samples=rows)).split())
    assert "median" not in reading_text(reading(samples=rows, scope=Scope.parse("global")))


def test_the_sigma_of_a_wider_scope_is_said_to_be_that_of_the_samples():
    said = "σ is that of the samples; gains are for the whole scope, where σ may be smaller"
    for scope in ("ball:0.1", "global"):
        assert said in " ".join(reading_text(reading(scope=Scope.parse(scope))).split())
    assert said not in " ".join(reading_text(reading()).split())


def test_a_step_without_a_bound_is_named_in_each_scope():
    """Nothing that explains an infinite number is left out because another scope said it too."""
    ball, everywhere = (
        reading(scope=Scope.parse(scope), log_upper=math.inf, no_bound=(Finding("div", "by what may be 0"),))
        for scope in ("ball:0.1", "global")
    )
    told = " ".join(as_text(reading_blocks([ball, everywhere])).split())
    assert told.count("No finite bound found: div: by what may be 0.") == 2
    assert told.count("Dropout is off in eval mode.") == 1


def test_the_steepest_sample_is_said_and_that_rows_explain_another_bound():
    rows = tuple({"index": i, "log10_lower": low, "log10_upper": 2.0} for i, low in enumerate((0.5, 1.25, 1.0)))
    told = " ".join(reading_text(reading(samples=rows)).split())
    assert "The steepest was met at sample 1 of 3 (the first is 0)." in told
    assert "The bound quoted above is not made of these rows" not in told
    other = reading_text(reading(log_balanced=2.5 * LN10, method="jacobian"))
    assert "The bound quoted above is not made of these rows" in " ".join(other.split())
    assert "The steepest was met" not in other
    for scope, where in (("ball:0.1", "was met around"), ("global", "was found by a search from")):
        elsewhere = reading(samples=rows, scope=Scope.parse(scope))  # a slope met elsewhere is not that of the sample
        assert f"The steepest {where} sample 1 of 3" in " ".join(reading_text(elsewhere).split())


def test_a_row_with_nothing_in_the_columns_below_is_not_named_again():
    rows = tuple(
        (f"layer.with.a.long.name.{i}", "Linear", *["-12345.678"] * 4, "1…2" if i == 1 else "·") for i in range(3)
    )
    told = list(grid_lines(Grid("", ("layer", "kind", *"abcd", "σ"), rows, frozenset({2, 3, 4, 5, 6})), 80))
    below = told[told.index("") :]
    assert sum("layer.with" in line for line in told[: told.index("")]) == 3
    assert any("1…2" in line for line in below) and not any("·" in line for line in below)


def test_a_product_of_nothing_has_no_sign():
    made = reading(published={"log10_P_w": -1e-17, "log10_prod_inv_sigma, rms": -0.0})
    assert [cell for _, cell in printed_products(made).rows] == ["0.00", "0.00"]
    assert "-0.00" not in reading_text(made)
