"""What studies of a paper share: figures from results, tables of a README, and the command that reproduces one."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.plot import Panel, figure
from normgauge import NormgaugeError

Makers = Mapping[str, Callable[[Any], list[Panel]]]
FROM_RESULTS = "Drawn from the committed results: nothing was trained. --train trains anew."


def draw_figures(
    makers: Makers, found: Any, out: Path, names: Sequence[str], findings: Mapping[str, str], *, columns: int = 3
) -> dict[str, Path | None]:
    """Write NAME.svg for each figure.

    Args:
        makers: the functions that make the panels, by the name of the figure; none where the results are missing.
        found: all results.
        out: the folder.
        names: which figures.
        findings: what each shows, as its title; what it is about stands there otherwise.
        columns: panels side by side.

    Returns:
        Where each figure is; None for one whose results are not there.
    """
    out.mkdir(parents=True, exist_ok=True)
    written: dict[str, Path | None] = {}
    for name in names:
        made = makers[name](found)
        written[name] = out / f"{name}.svg" if made else None
        if made:
            about = (makers[name].__doc__ or "").strip()
            shown = findings.get(name)
            picture = figure(shown or about.rstrip("."), made, columns=columns, below=about if shown else "")
            (out / f"{name}.svg").write_text(picture, encoding="utf-8")
    return written


def figure_arguments(argv: list[str] | None, about: str | None, names: Sequence[str], folder: Path, out: Path) -> Any:
    """The arguments of a command that draws figures: results, out and only."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("results", nargs="?", type=Path, default=folder)
    parser.add_argument("out", nargs="?", type=Path, default=out)
    parser.add_argument("--only", nargs="*", choices=names, default=names)
    return parser.parse_args(argv)


def fill_readme(
    argv: list[str] | None, about: str | None, tables: Callable[[Path], Mapping[str, str]], folder: Path, readme: Path
) -> int:
    """The command that writes the tables of a README between their markers; returns the exit code."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("results", nargs="?", type=Path, default=folder)
    parser.add_argument("--readme", type=Path, default=readme)
    args = parser.parse_args(argv)
    text = args.readme.read_text(encoding="utf-8")
    for name, table in tables(args.results).items():
        text = between(text, name, table)
    args.readme.write_text(text, encoding="utf-8")
    return 0


def between(text: str, name: str, table: str) -> str:
    """The text with what lies between two markers replaced.

    Raises:
        ValueError: when the markers are not there.
    """
    begin, end = f"<!-- table {name} -->", f"<!-- end {name} -->"
    head, found, rest = text.partition(begin)
    _, also, tail = rest.partition(end)
    if not found or not also:
        raise ValueError(f"the text has no {begin} ... {end}")
    return f"{head}{begin}\n{table}\n{end}{tail}"


def grid(headers: Sequence[str], rows: Sequence[Sequence[str]], *, words: int) -> str:
    """A Markdown table; the first so many columns are words, the rest numbers to the right."""
    if not rows:
        return "No results yet."
    rule = [*["---"] * words, *["---:"] * (len(headers) - words)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (headers, rule, *rows))


def reproduce_parser(about: str | None, names: Sequence[str], default: str) -> argparse.ArgumentParser:
    """The arguments that `normgauge reproduce` hands on."""
    made = argparse.ArgumentParser(prog="normgauge reproduce", description=about)
    made.add_argument("name", nargs="?", choices=names, default=default)
    made.add_argument("--list", action="store_true")
    made.add_argument("--out", type=Path, default=Path("reproduce-output"))
    made.add_argument("--train", action="store_true")
    made.add_argument("--scale", default="full")
    made.add_argument("--data-dir")
    made.add_argument("--jobs", type=int, default=1)
    made.add_argument("--minutes", type=float)
    made.add_argument("--epochs", type=int)
    return made


def reproduce_figure(
    args: argparse.Namespace,
    makers: Makers,
    committed: Callable[[argparse.Namespace], dict[str, Any]],
    train: Callable[[argparse.Namespace], dict[str, Any]],
) -> int:
    """Draw one figure, or list all of them; what was done is printed as JSON.

    Args:
        args: as from `reproduce_parser`.
        makers: the figures.
        committed: draws from the results that come with the checkout.
        train: trains anew and draws.

    Returns:
        The exit code.
    """
    if args.list:
        print(json.dumps({name: (draw.__doc__ or "").strip() for name, draw in makers.items()}))
        return 0
    try:
        told = train(args) if args.train else {**committed(args), "trained": False, "words": FROM_RESULTS}
    except NormgaugeError as error:
        print(f"normgauge: {error}", file=sys.stderr)
        return 1
    print(json.dumps(told))
    return 0
