"""Normalizers whose statistics are frozen: what is added to the mean comes off the shift.

y = γ (x − m)/√(v + ε) + β does not change under m → m + δ, β → β + γδ/√(v + ε).
"""

from __future__ import annotations

from torch import Tensor

from normgauge.symmetry.generators import Generator, State, put, taken
from normgauge.symmetry.graph import Graph
from normgauge.symmetry.labels import Labels
from normgauge.symmetry.operations import Normal, normalization
from normgauge.symmetry.sites import readings


def mean_shifts(graph: Graph, labels: Labels, eps: dict[str, float]) -> list[Generator]:
    """One family for every frozen normalizer with a mean and a shift of its own."""
    reads = readings(graph, labels)
    families = []
    for node in graph.nodes:
        normal = normalization(node)
        if normal is None or not normal.frozen or not normal.statistics:
            continue
        shift = labels.rearranged(normal.bias) if normal.bias is not None else None
        if shift is not None and reads[normal.statistics[0].name] == 1 == reads[shift[0]]:
            families.append(_family(labels, normal, *shift, eps))
    return families


def _family(labels: Labels, normal: Normal, shift: str, places: Tensor, eps: dict[str, float]) -> Generator:
    mean, variance = (v.name for v in normal.statistics)
    gain = labels.rearranged(normal.weight) if normal.weight is not None else None

    def move(state: State, numbers: Tensor) -> dict[str, Tensor]:
        by = numbers / (state[variance] + eps.get(variance, 0.0)).sqrt()
        by = by * taken(state, *gain) if gain is not None else by
        return {mean: state[mean] + numbers, shift: put(state, shift, places, taken(state, shift, places) + by)}

    return Generator("pair", "shift of a frozen mean that the bias takes back", (mean, shift), len(places), move)
