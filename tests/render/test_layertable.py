from __future__ import annotations

import math

import pytest

from normgauge.core.spelled import LN10
from normgauge.render.layertable import TOP_ROWS, folds, reading_layers
from tests.made import layer, reading


def found(*named: tuple[str, str]) -> list[tuple[int, int, int, str]]:
    records = [layer(name, kind, 0.1, i) for i, (name, kind) in enumerate(named)]
    return [(fold.start, fold.stop, fold.count, fold.label) for fold in folds(records)]


def block(prefix: str, *parts: str) -> list[tuple[str, str]]:
    return [(f"{prefix}.{part}", part.capitalize()) for part in parts]


def test_equal_blocks_in_a_row_fold():
    net = [("stem", "Conv"), *block("layer1.0", "conv", "bn"), *block("layer1.1", "conv", "bn"), ("head", "Linear")]
    assert found(*net) == [(1, 5, 2, "layer1.0 … layer1.1")]


def test_blocks_of_other_stages_or_other_structure_do_not():
    net = [*block("layer1.0", "conv", "bn"), *block("layer2.0", "conv", "bn"), *block("layer2.1", "conv", "relu")]
    assert found(*net) == []


def test_a_first_block_that_differs_stays_outside():
    net = [*block("s.0", "conv", "bn", "down"), *block("s.1", "conv", "bn"), *block("s.2", "conv", "bn")]
    assert found(*net) == [(3, 7, 2, "s.1 … s.2")]


def test_blocks_inside_blocks_fold_where_the_outer_ones_do_not():
    net = [
        *block("layers.0.blocks.0", "norm", "mlp"),
        *block("layers.0.blocks.1", "norm", "mlp"),
        *block("layers.1.blocks.0", "norm", "mlp", "extra"),
    ]
    assert found(*net) == [(0, 4, 2, "layers.0.blocks.0 … layers.0.blocks.1")]


def test_numbered_layers_fold_by_their_kinds():
    kinds = ["Flatten", *["Linear", "BatchNorm1d", "ReLU"] * 3, "Linear"]
    assert found(*((str(i), kind) for i, kind in enumerate(kinds))) == [(1, 10, 3, "1 … 9")]


@pytest.mark.parametrize("kinds", [["Linear", "ReLU", "Linear"], ["Linear"], [], ["Linear", "Linear"]])
def test_short_nets_do_not_fold(kinds):
    assert found(*((str(i), kind) for i, kind in enumerate(kinds))) == []


def test_named_functions_do_not_fold():
    assert found(*((f"relu#{i}", "relu") for i in range(8))) == []


def test_folds_never_overlap_in_a_mixed_net():
    net = [*block("a.0", "x", "y"), *block("a.1", "x", "y"), ("mid", "Add"), *((str(i), "Linear") for i in range(6))]
    assert found(*net) == [(0, 4, 2, "a.0 … a.1"), (5, 11, 6, "0 … 5")]


def test_a_summary_row_with_an_infinite_gain_is_infinite(tmp_path):
    from normgauge.render.layertable import _sum

    assert _sum([1.0, math.inf, -math.inf]) == "inf" and _sum([None]) == "·" and _sum([LN10, None]) == "1.00"


def test_of_a_long_network_the_gains_farthest_from_one_are_shown_and_the_last():
    """Not the shares: they are no property of one layer, and one that shrinks a change by much does much to it."""
    small, shrinks = (layer(name, "Linear", gain, i) for i, (name, gain) in enumerate((("s", 0.2), ("d", -0.6))))
    loud = [layer(f"w{i}", "Linear", 0.3, 2 + i, log_balanced=5.0, log_folded=5.0) for i in range(TOP_ROWS)]
    end = layer("end", "Linear", 0.01, 99, log_balanced=0.0, log_folded=0.0)
    grid = reading_layers(reading(layers=(small, shrinks, *loud, end)))
    shown = [row[0] for row in grid.rows]
    assert "d" in shown and shown[-1] == "end" and "s" not in shown and len(shown) == TOP_ROWS
    assert "3 of 33 layers with gains nearer to 1 are not shown" in grid.footer
