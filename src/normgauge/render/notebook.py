"""A reading as a fragment of HTML for notebooks: no script, no style that reaches the rest of the notebook."""

from __future__ import annotations

from html import escape

from normgauge.core.reading import Reading
from normgauge.render import table, verdict
from normgauge.render.table import Grid
from normgauge.render.theme import NOTEBOOK, asset, figure_css
from normgauge.render.waterfall import waterfall

SCOPE = ".normgauge-reading"


def fragment(reading: Reading) -> str:
    """The reading as HTML that may stand among other output: verdict, waterfall and the most active layers.

    Text and background are the notebook's own, so that it fits light and dark ones.
    """
    style = figure_css(NOTEBOOK, SCOPE) + asset("notebook.css")
    first = [] if reading.log_refuted is None else [verdict.alarm(reading)]
    told = [*first, verdict.upper_sentence(reading), verdict.bracket_sentence(reading)]
    warned = "".join(f"<p>{escape(sentence)}</p>" for sentence in verdict.trouble_sentences(reading))
    layers = _table(table.layers(reading)) if reading.layers else ""
    return (
        f'<div class="{SCOPE[1:]}"><style>{style}</style><p><b>{escape(reading.model)}</b>, mode '
        f"{escape(reading.mode)}, scope {escape(str(reading.scope))}. {escape(' '.join(told))}</p>{warned}"
        f"{waterfall(reading)}{layers}</div>"
    )


def _table(grid: Grid) -> str:
    def cells(row: tuple[str, ...], tag: str) -> str:
        classes = [' class="ng-n"' if i in grid.numeric else "" for i in range(len(row))]
        return "".join(f"<{tag}{c}>{escape(words)}</{tag}>" for c, words in zip(classes, row, strict=True))

    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in grid.rows)
    return (
        f"<details><summary>{escape(grid.title)}</summary><table><thead><tr>{cells(grid.headers, 'th')}</tr></thead>"
        f"<tbody>{body}</tbody></table><p>{escape(grid.footer)}</p></details>"
    )
