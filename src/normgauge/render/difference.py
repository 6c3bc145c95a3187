"""Two readings beside each other, in words and tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter

from normgauge.core import reference
from normgauge.core.attribution import names_moved
from normgauge.core.compare import ADDED, KEPT, REMOVED, REPLACED, SAME, Change, Difference, LayerChange, wiring
from normgauge.core.first_notes import counts_unreached
from normgauge.core.reading import Reading
from normgauge.core.spelled import LN10
from normgauge.render.change_words import (
    gauge_sentence,
    growth_sentence,
    is_unchanged,
    sample_sentences,
    steeper_sentence,
    weaker_sentence,
    weights_sentence,
)
from normgauge.render.console import OF_SAMPLES, PRODUCTS, Block
from normgauge.render.numbers import (
    ABSENT,
    DOWN,
    UP,
    decimals,
    format_decades,
    format_factor,
    scope_words,
    signed_decades,
)
from normgauge.render.table import Grid
from normgauge.render.verdict import (
    apart_sentence,
    ends_of,
    ends_tell,
    evidence_words,
    refutation_sentence,
    unsure_sentence,
    version_sentence,
)

ROWS = 20
NAMED = 3  # layers in the verdict


def difference_verdict(difference: Difference) -> list[str]:
    """What became of the bound and whose doing it is, then what else must not be missed."""
    ends = (("A", difference.a), ("B", difference.b))
    sentences = [f"{name}: {refutation_sentence(r)}" for name, r in ends if r.log_refuted is not None]
    sentences += _other_modes(difference)
    if difference.apart:
        sentences.append(apart_sentence(scope_words(difference.a.scope)))
    else:
        told, steeper = sample_sentences(difference), steeper_sentence(difference)
        sentences += [growth_sentence(difference), *told, weights_sentence(difference), steeper]
        sentences += [unsure_sentence([difference.a, difference.b])] if steeper and not told else []
        sentences += [_cause(difference), weaker_sentence(difference)]
        sentences.append(_unreached(difference))
    sentences += [f"{name} was edited after it was written." for name, r in ends if r.edited and r.log_refuted is None]
    sentences += [
        f"{name} is of schema 1, which has no digest: nothing would show that its numbers were edited."
        for name, r in ends
        if r.undigested and not r.edited
    ]
    return [sentence for sentence in sentences if sentence]


def _other_modes(difference: Difference) -> list[str]:
    """That the two are not the same kind of map, before they are compared as if they were."""
    a, b = difference.a, difference.b
    if (a.mode, ends_of(a), a.together) == (b.mode, ends_of(b), b.together):
        return []
    modes = [f"mode {r.mode} ({_ends_words(r)}){', one map of the whole batch' * r.together}" for r in (a, b)]
    return [f"A was read in {modes[0]}, B in {modes[1]}."]


def _ends_words(reading: Reading) -> str:
    """The measured input, and the output where it has a name."""
    return " to ".join(filter(None, ends_of(reading)))


def _unreached(difference: Difference) -> str:
    """What of the numbers below is also made of rows that do not reach an output; empty where none is."""
    names = [name for name, r in (("A", difference.a), ("B", difference.b)) if counts_unreached(r.notes)]
    if not names:
        return ""
    return (
        f"In {' and '.join(names)} rows that do not reach the output, such as padding, count in balanced and folded "
        "and in the gains of layers, though not in σ: samples of one length have none."
    )


def _cause(difference: Difference) -> str:
    """Whose doing the change is; empty where it is too small for that and something else has changed."""
    if difference.other_gauge:
        return gauge_sentence(difference)
    if abs(difference.growth) < SAME:
        return "Nothing that counts has changed." if is_unchanged(difference) else ""
    if difference.rest is None:
        return f"It cannot be divided among the layers: {_undivided(difference)}."
    largest = [(name, share) for name, share in difference.parts if abs(share) >= SAME][:NAMED] or difference.parts[:1]
    told = ", ".join(f"{name} ({signed_decades(share)})" for name, share in largest)
    one_way = all(share * difference.growth > 0 for _, share in largest)
    half = math.fsum(share for _, share in largest) / difference.growth > 0.5
    by_layer = _by_layer(difference)
    if abs((by_layer.by or 0.0) - difference.growth) >= SAME:  # another method than the product of layers gave a bound
        return f"Of the balanced bound's change ({_cells(by_layer, UP)[2]} decades) the largest parts are {told}."
    return f"{'Most of it comes' if one_way and half else 'Its largest parts come'} from {told}."


def _undivided(difference: Difference) -> str:
    """Why the change has no parts."""
    others = [layer for layer in difference.layers if layer.status == REPLACED]
    if wiring(difference.a) != wiring(difference.b) and names_moved(difference.a, difference.b):
        kept = sum(layer.status == KEPT for layer in difference.layers)
        why = f"of A's {len(difference.a.layers)} B has {kept or 'none'}"
        if others:
            why = f"{others[0].name} is {others[0].kinds[0]} in A and {others[0].kinds[1]} in B"
        return f"names do not tell which of them are the same, {why}"
    return "the networks are wired differently, or a gain is infinite"


def _by_layer(difference: Difference) -> Change:
    """What became of the balanced bound, which is divided among the layers."""
    return Change(difference.a.log_capacity, difference.b.log_capacity)


def difference_blocks(differences: Sequence[Difference], names: tuple[str, str], every: bool = False) -> list[Block]:
    """The verdict in each scope, the totals, then the layers in each scope and the products of the first."""
    first = differences[0]
    parts: list[Block] = [*_heads(first, names), ""]
    for difference in differences:
        head, *others = difference_verdict(difference)
        parts += [f"{difference.a.scope}: {head}", *(f"  {sentence}" for sentence in others)]
    compared = [difference for difference in differences if not difference.apart]
    if not compared:
        return parts
    layers = [layer_changes(difference, every) for difference in compared]
    shown = [grid for grid in layers if grid.rows or grid is layers[0]]
    return [*parts, difference_totals(compared), *shown, product_changes(compared[0])]


def _heads(difference: Difference, names: tuple[str, str]) -> Iterator[str]:
    """What A and B are; of a reference the data that it was measured on, which is its own."""
    ends = {"A": difference.a, "B": difference.b}
    for (side, reading), name in zip(ends.items(), names, strict=True):
        known = f". {reference.about(name)}" if name.startswith(reference.PREFIX) else ""
        yield f"{side}: {name} ({reading.model}){known}"
    yield from filter(None, [version_sentence({side: [reading] for side, reading in ends.items()})])


def difference_totals(differences: Sequence[Difference]) -> Grid:
    """Upper, folded, lower and gap of both, one row a scope and quantity."""
    rows = []
    for d in differences:
        totals = (("upper", d.upper), ("balanced", _by_layer(d)), ("folded", d.folded), ("lower (found)", d.lower))
        for name, change in totals:
            rows.append(
                (
                    str(d.a.scope),
                    name,
                    *_cells(change, DOWN if change is d.lower else UP),
                    "; ".join(dict.fromkeys(map(evidence_words, (d.a, d.b)))) if name == "upper" else "",
                )
            )
        gaps = Change(d.a.gap * LN10, d.b.gap * LN10)
        rows.append((str(d.a.scope), "gap", *_cells(gaps), ""))
    headers = ("scope", "log10", "A", "B", "change", "evidence")
    return Grid("Totals", headers, tuple(rows), frozenset({2, 3, 4}))


def layer_changes(difference: Difference, every: bool = False) -> Grid:
    """What each layer's numbers did, the largest change first."""
    moved = [layer for layer in difference.layers if layer.size > 0 or layer.status != KEPT]
    shown = moved if every else moved[:ROWS]
    hidden = len(difference.layers) - len(shown)
    rest = "; smallest σ: at the samples, in every scope" if any(layer.sigma.by is not None for layer in shown) else ""
    rest += (
        ""
        if difference.rest is None
        else "; share: at the sample with the largest bound, the others at each layer's own worst one; the shares add "
        f"up to the balanced bound's change ({_cells(_by_layer(difference), UP)[2]}), and a linear map with the "
        "normalizer behind it counts as one in the words above"
    )
    return Grid(
        f"Layers, scope {difference.a.scope}: change in decades from A to B",
        ("layer", "kind", "share", "gain", "folded", "balanced", "smallest σ"),
        tuple(_row(layer) for layer in shown),
        frozenset(range(2, 7)),
        f"{hidden} of {len(difference.layers)} layers are not shown: they {'did not move' if every else 'moved less'}"
        + rest
        if hidden
        else rest.removeprefix("; "),
    ).without_empty()


def _row(layer: LayerChange) -> tuple[str, ...]:
    kind = layer.kinds[0] if layer.kinds[0] == layer.kinds[1] else " → ".join(k for k in layer.kinds if k)
    alone = layer.status in (ADDED, REMOVED)  # the other side has no number
    cells = [
        format_decades(change.b if layer.status == ADDED else change.a, way=UP) if alone else signed_decades(change.by)
        for change in (layer.gain, layer.folded, layer.balanced)
    ]
    return (
        layer.name,
        f"{kind}, {layer.status}" if alone else kind,
        signed_decades(layer.share),
        *cells,
        signed_decades(layer.sigma.by),
    )


def product_changes(difference: Difference) -> Grid:
    """Return a table of the gauge-dependent products of both readings."""
    rows = tuple((PRODUCTS.get(name, name), *_cells(change)) for name, change in difference.published.items())
    title = f"Published quantities, {OF_SAMPLES[difference.a.scope.kind]} (scope {difference.a.scope}): gauge-dependent"
    return Grid(title, ("quantity", "A", "B", "change"), rows, frozenset({1, 2, 3}))


def _cells(change: Change, way: Callable[[float], int] | None = None) -> tuple[str, str, str]:
    """Both ends, and the change between them before they were rounded, with the decimals that one of the ends needs."""
    most = max(2, *(decimals(format_decades(end, way=way)) for end in (change.a, change.b)))
    return format_decades(change.a, most, way), format_decades(change.b, most, way), signed_decades(change.by, most)


def reference_totals(readings: Sequence[Reading], others: Sequence[tuple[str, Sequence[Reading]]]) -> Grid:
    """What is normal elsewhere: the totals of other networks beside these, scope by scope."""
    rows = []
    for reading in readings:
        matches = [next((r for r in other if r.scope == reading.scope), None) for _, other in others]
        for name, shown, way in (("at most, ", attrgetter("log_upper"), UP), ("found ", attrgetter("log_lower"), DOWN)):
            cells = [ABSENT if match is None else format_factor(shown(match), way) for match in (reading, *matches)]
            rows.append((name + scope_words(reading.scope), *cells))
    headers = ("", "this network", *(name for name, _ in others))
    footer = _other_ends(readings[0], others)
    return Grid("What is normal elsewhere", headers, tuple(rows), frozenset(range(1, len(headers))), footer)


def _other_ends(reading: Reading, others: Sequence[tuple[str, Sequence[Reading]]]) -> str:
    """Which of the others were measured between other inputs and outputs, whose slopes are on other scales."""
    ends = ends_of(reading)
    unlike = [
        (name, other[0]) for name, other in others if other and not (ends_of(other[0]) == ends and ends_tell(ends))
    ]
    if not unlike:
        return ""
    told = ", ".join(f"{name} in {_ends_words(other)}" for name, other in unlike)
    return (
        f"Not known to be measured between the same ends: {told}; this network in {_ends_words(reading)}. Slopes "
        "between other inputs and outputs are on other scales"
    )
