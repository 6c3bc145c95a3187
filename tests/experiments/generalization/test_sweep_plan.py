from __future__ import annotations

from collections import Counter

from experiments.generalization.sweep_plan import GRIDS, plan


def test_the_plan_has_more_than_300_networks_each_once_and_covers_both_kinds():
    nets = plan()
    assert len(nets) == len({net.key for net in nets}) >= 300
    kinds = Counter(net.kind for net in nets)
    assert min(kinds.values()) >= 150
    assert nets == plan() and {net.seed for net in nets[: len(nets) // 2]} == {0}
    assert {net.norm for net in nets if net.kind == "cnn"} == set(GRIDS["cnn"]["norm"])
