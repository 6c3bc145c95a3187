"""What the scores of a sweep are worth: `python -m experiments.generalization.ranking sweep.jsonl --out FOLDER`.

Writes ranking.json, ranking.md and ranking.svg.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from experiments.generalization.ranking_figure import drawn
from experiments.generalization.ranking_table import markdown, ranking, read
from normgauge import NormgaugeError


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the sweep, write the table and the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweeps", type=Path, nargs="+", help="files of JSON lines")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    told = parser.parse_args(arguments)
    try:
        records = read(told.sweeps)
    except (NormgaugeError, OSError, ValueError) as error:
        print(error)
        return 1
    found = ranking(records)
    told.out.mkdir(parents=True, exist_ok=True)
    (told.out / "ranking.json").write_text(json.dumps(found, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    (told.out / "ranking.md").write_text(markdown(found), encoding="utf-8")
    (told.out / "ranking.svg").write_text(drawn(found, records), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
