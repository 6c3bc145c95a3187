"""Training-complexity ratios in words and a table."""

from __future__ import annotations

from normgauge.core.ratios import LAWS, LayerRatio, Ratios
from normgauge.render.console import Block
from normgauge.render.numbers import UP, format_decades, format_factor, plural, signed_decades
from normgauge.render.table import Grid

MEANING = (
    "These are ratios of upper bounds of slopes at the weights there are. Worst-case laws of optimization use a "
    "constant over all weights, for a class of functions with such a constant; where a normalizer comes behind, the "
    "slope moves with the weights. The ratios are never iterations of this training: one given loss may need none, or "
    "any number."
)
SCALE = (
    "Weights before a normalizer are scale-free: ∇L(cw) = ∇L(w)/c, so that a small gradient can be had by growing w, "
    "and the slope falls with it. Compare ‖w‖·‖∇L‖ there."
)


def ratio_blocks(found: Ratios) -> list[Block]:
    """The verdict, the table, the laws, and what all of it does not say."""
    parts: list[Block] = [f"A: {found.a}", f"B: {found.b}", "", *ratio_verdict(found), ratio_grid(found), laws()]
    if any(layer.scale_free for layer in found.layers):
        parts.append(SCALE)
    return [*parts, MEANING, *found.notes]


def ratio_verdict(found: Ratios) -> list[str]:
    """The layer with the smallest ratio and that with the largest; how many say nothing."""
    known = [(layer.log_ratio, layer) for layer in found.layers if layer.log_ratio is not None]
    silent = len(found.layers) - len(known)
    told = []
    if known:
        (low, least), (high, most) = min(known, key=lambda k: k[0]), max(known, key=lambda k: k[0])
        told.append(
            f"Bounds of A's slopes in the weights, as these are, are {format_factor(low)} ({least.name}) to "
            f"{format_factor(high)} ({most.name}) times B's, scope {found.scope}."
        )
    if silent:
        told.append(f"No statement for {plural(silent, 'layer')} of {len(found.layers)}.")
    return told


def ratio_grid(found: Ratios) -> Grid:
    """Return a table with one row for each layer."""
    return Grid(
        "Slope of the output in each layer's weights, as these are: at most, log10",
        ("layer", "kind", "A", "B", "A/B", "(A/B)²", "normalizers from it on", ""),
        tuple(_row(layer) for layer in found.layers),
        frozenset(range(2, 7)),
        f"scope {found.scope}; normalizers: A's, less B's, in the order of execution",
    )


def _row(layer: LayerRatio) -> tuple[str, ...]:
    ratio = layer.log_ratio
    note = f"no statement: {layer.why}" if layer.why else "scale-free" if layer.scale_free else ""
    powers = (signed_decades(ratio), signed_decades(None if ratio is None else 2 * ratio))
    count = str(layer.normalizers[0] - layer.normalizers[1])
    return (
        layer.name,
        layer.kind,
        format_decades(layer.log_a, way=UP),
        format_decades(layer.log_b, way=UP),
        *powers,
        count,
        note,
    )


def laws() -> Grid:
    """Which law uses the ratio to which power."""
    rows = tuple((law.what, law.steps, f"(A/B)^{law.power}") for law in LAWS)
    return Grid("Worst cases that use it", ("functions", "steps, up to a constant", "ratio"), rows)
