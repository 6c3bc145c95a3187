"""The page's table of layers: every layer a row, repeated blocks under one summary row."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from normgauge.core.reading import LayerRecord, Reading
from normgauge.render.blocks import Fold, folds
from normgauge.render.levels import tone
from normgauge.render.numbers import decades, plural, sigma_range

HEADERS = ("#", "layer", "kind", "gain", "folded", "balanced", "cumulative", "reached", "slack", "σ", "note")
MEANINGS = {
    "gain": "most the layer alone can stretch a change",
    "folded": "its share when folded with its neighbours",
    "balanced": "its share in the balanced bound",
    "cumulative": "bound from the input to here, layer by layer",
    "reached": "what the steepest direction found had grown to by here",
    "slack": "what the gain allows over what the layer did to that direction",
    "σ": "smallest and largest √(variance + ε)",
}
LONG, TAIL = 36, 16  # a name longer than this is cut on the screen, its last parts are kept
TEXT_COLUMNS = frozenset({"layer", "kind", "note"})


def layer_table(reading: Reading, key: str) -> str:
    """The table as HTML; the page's script makes it sortable, filterable and foldable.

    Args:
        reading: whose layers.
        key: rows have the ids ``{key}0``, ``{key}1``, ...
    """
    heads = "".join(_head(name) for name in HEADERS)
    rows = "".join(_rows(reading.layers, key))
    label = escape(f"Layers, scope {reading.scope}")
    return (
        f'<div class="scroll" role="region" aria-label="{label}" tabindex="0"><table class="layers">'
        f"<caption>{plural(len(reading.layers), 'layer')} in the order of execution, log10</caption>"
        f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _head(name: str) -> str:
    told = f' title="{MEANINGS[name]}"' if name in MEANINGS else ""
    kind = "" if name in TEXT_COLUMNS else ' class="n"'
    return f'<th scope="col"{kind}{told}>{name}</th>'


def _rows(records: Sequence[LayerRecord], key: str) -> Iterator[str]:
    starts = {fold.start: (index, fold) for index, fold in enumerate(folds(records))}
    inside, stop = "", 0
    for place, record in enumerate(records):
        if place in starts:
            index, fold = starts[place]
            inside, stop = f' data-in="{index}"', fold.stop
            yield _summary(records, fold, index)
        yield _row(record, place, key, inside if place < stop else "")


def _row(record: LayerRecord, place: int, key: str, inside: str) -> str:
    numbers = (
        decades(record.gain.hi),
        decades(record.log_folded),
        decades(record.log_balanced),
        decades(record.log_cumulative),
        decades(record.log_reached),
        decades(record.log_slack),
        sigma_range(record.sigma),
    )
    return (
        f'<tr id="{key}{place}" class="{tone(record)}" data-rule="{escape(record.rule)}" '
        f'data-tip="{escape(tip(record))}"{inside}><td>{place + 1}</td>{_name(record.name)}'
        f"<td>{escape(record.kind)}</td>{_cells(numbers)}<td>{escape(record.note)}</td></tr>"
    )


def _name(name: str) -> str:
    """The cell with a row's name; of a long one the style sheet cuts the head, since the end tells layers apart."""
    if len(name) <= LONG:
        return f'<th scope="row">{escape(name)}</th>'
    dot = name.find(".", len(name) - TAIL, -1)
    at = len(name) - TAIL if dot < 0 else dot
    head, tail = escape(name[:at]), escape(name[at:])
    return f'<th scope="row" title="{escape(name)}"><span class="head">{head}</span><span>{tail}</span></th>'


def _cells(numbers: Sequence[str]) -> str:
    return "".join(f"<td>{escape(number)}</td>" for number in numbers)


def tip(record: LayerRecord) -> str:
    """What the tooltip says beside the rule's formula: the formula with the layer's numbers, claim and note."""
    rule = f"Rule {record.rule}" + (f", claim {record.claim}" if record.claim else "")
    return "\n".join(line for line in (record.worked, rule, record.note) if line)


def _summary(records: Sequence[LayerRecord], fold: Fold, index: int) -> str:
    members = records[fold.start : fold.stop]
    numbers = (
        _sum([r.gain.hi for r in members]),
        _sum([r.log_folded for r in members]),
        _sum([r.log_balanced for r in members]),
        decades(members[-1].log_cumulative),
        decades(members[-1].log_reached),
        "",  # slacks of branches side by side do not add up to anything
    )
    blocks = f"{fold.count} blocks of {plural(len(members) // fold.count, 'layer')}"
    told = f"{blocks}; gains and shares are sums, slacks do not add up"
    return (
        f'<tr class="fold" data-fold="{index}"><td>{fold.start + 1}</td>{_name(fold.label)}'
        f"<td>×{fold.count}</td>{_cells(numbers)}<td></td><td>{told}</td></tr>"
    )


def _sum(logs: Sequence[float | None]) -> str:
    known = [log for log in logs if log is not None]
    return decades(math.inf if math.inf in known else sum(known) if known else None)
