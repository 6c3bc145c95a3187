"""Tell all that a saved reading knows about one layer: its rule, the formula with its numbers, its place.

Without LAYER the layers are listed with their kinds. Of a file with several readings the first is taken, or the one
named with --scope. Nothing is measured and torch is not loaded.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any, TextIO

from normgauge.cli.arguments import readings_at
from normgauge.cli.output import check_targets, write_answer
from normgauge.core import reference
from normgauge.core.bound import Scope
from normgauge.core.errors import ReadingError
from normgauge.core.reading import Reading
from normgauge.render.console import draw_blocks
from normgauge.render.explain import explanation_items, find_layer
from normgauge.render.numbers import plural
from normgauge.render.table import Grid

HELP = "tell all that a saved reading knows about one layer"
EXAMPLES = f"""\
examples:
  normgauge explain reading.json                       its layers
  normgauge explain reading.json stem                  one of them
  normgauge explain reading.json stem --scope global   in the reading of another scope
  normgauge explain reference:resnet20 conv1 --json -

references:
  {", ".join(reference.names())}
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("file", metavar="READING.json", help="a file with readings, or reference:NAME")
    parser.add_argument("layer", nargs="?", metavar="LAYER", help="name of a layer; without it all are listed")
    parser.add_argument(
        "--scope", metavar="S", help="which reading of several: point, ball:RADIUS or global; without it, the first"
    )
    parser.add_argument("--json", metavar="FILE", help="write the sentences as JSON; - for standard output")


def run(args: argparse.Namespace) -> int:
    """Read the file, tell of one layer or list them."""
    check_targets(args.json)
    reading = reading_in_scope(readings_at(args.file), args.scope, args.file)
    write_answer(args.json, partial(explanation_json, reading, args.layer), partial(show, reading, args.layer))
    return 0


def reading_in_scope(found: list[Reading], scope: str | None, name: str) -> Reading:
    """The first of the readings, or the first in that scope.

    Raises:
        ReadingError: when there is none; those that are there are named.
    """
    if scope is None:
        return found[0]
    wanted = Scope.parse(scope)
    for reading in found:
        if reading.scope == wanted:
            return reading
    scopes = ", ".join(dict.fromkeys(str(reading.scope) for reading in found))
    raise ReadingError(f"{name} has no reading in scope {wanted}; it has {scopes}")


def explanation_json(reading: Reading, layer: str | None) -> dict[str, Any]:
    """The layers with their kinds, or the sentences about one."""
    head = {"schema": 1, "model": reading.model, "scope": str(reading.scope)}
    if layer is None:
        return {**head, "layers": [{"name": record.name, "kind": record.kind} for record in reading.layers]}
    record = find_layer(reading, layer)
    told = [{"label": label, "sentence": words} for label, words in explanation_items(reading, record)]
    return {**head, "layer": layer, "kind": record.kind, "sentences": told}


def show(reading: Reading, layer: str | None, stream: TextIO) -> None:
    """Write the layers, or what is known about one, to a stream."""
    if layer is not None:
        stream.write(reading.explain(layer) + "\n")
        return
    rows = tuple((record.name, record.kind) for record in reading.layers)
    title = f"{reading.model}, scope {reading.scope}: {plural(len(rows), 'layer')}"
    draw_blocks([Grid(title, ("layer", "kind"), rows)], stream)
