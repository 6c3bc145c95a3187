"""Symmetries in words: a sentence, a table for each kind, and what was not looked at."""

from __future__ import annotations

from normgauge.core.symmetry import Symmetries, Symmetry, defect_size
from normgauge.render.console import Block
from normgauge.render.numbers import shortened_names
from normgauge.render.table import Grid

MEANING = {
    "scale": "weights that may be multiplied",
    "shift": "weights that something may be added to",
    "pair": "what one weight gains another gives back",
}
BROKEN = 1e-3  # relative change of the output from which eval mode does not share a symmetry
COLUMNS = "exact: change of the output with ε taken out of the normalizers, relative; with ε: the model as it is"


def symmetry_blocks(found: Symmetries) -> list[Block]:
    """Return what a terminal shows: a sentence, a table for each kind, then notes."""
    parts: list[Block] = [f"{found.summary()} ({found.mode} mode)."]
    parts += [_grid(f"{kind}: {meaning}", found.of(kind)) for kind, meaning in MEANING.items() if found.of(kind)]
    return [*parts, "", *(f"· {note}" for note in _notes(found))]


def _grid(title: str, groups: tuple[Symmetry, ...]) -> Grid:
    evaluated = any(g.eval_defect is not None for g in groups)
    headers = ["what", "weights", "directions", "exact", "with ε", *(["eval", "eval alone"] if evaluated else [])]
    rows = []
    for group in groups:
        cells = [
            group.what,
            shortened_names(group.parameters, 3),
            str(group.count),
            defect_size(group.exact),
            defect_size(group.defect),
        ]
        if evaluated:
            alone = "broken" if (group.eval_alone or 0.0) > BROKEN else defect_size(group.eval_alone)
            cells += [defect_size(group.eval_defect), alone]
        rows.append(tuple(cells))
    return Grid(title, tuple(headers), tuple(rows), frozenset(range(2, len(headers))))


def _notes(found: Symmetries) -> list[str]:
    notes = [COLUMNS] if found.groups else []
    if any(g.eval_defect is not None for g in found.groups):
        notes.append("eval: running statistics moved along; eval alone: left as they are, so that eval mode sees it")
    notes += [f"no statement on {name}: what it touches was left out" for name in found.unknown]
    if found.unused:
        notes.append(f"the output does not depend on {shortened_names(found.unused, 5)}")
    notes += [f"given by the equations, refused by the model: {text}" for text in found.rejected]
    notes += [f"not looked for: {text}" for text in found.not_looked_for]
    return notes + list(found.notes)
