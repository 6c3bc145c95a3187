"""Reproduce a paper's figure: draw it from the committed results, or train anew. From a checkout of the repository.

The experiments are not part of the installed package: they lie in the folder experiments/ of the repository, one folder
a paper, each with a README that says what held and what did not.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from normgauge.cli.output import write_answer
from normgauge.core.checkout import checkout
from normgauge.core.errors import InputError
from normgauge.render.console import draw_blocks
from normgauge.render.numbers import plural
from normgauge.render.table import Grid

HELP = "draw a figure of a paper again, or train its networks anew"
EXAMPLES = """\
examples:
  normgauge reproduce                                          what there is
  normgauge reproduce than2025/fig1                            from the committed results, in seconds
  normgauge reproduce than2025/fig1 --train --scale digits     train anew, small
  normgauge reproduce than2025/fig1 --train --data-dir data    train anew on CIFAR-10: hours without a GPU
  normgauge reproduce akbar2025/fig8.1 --train --jobs 2        synthetic data: minutes on a CPU
"""
OUT = "reproduce-output"
SCALES = "with --train: how large; than2025 has full and digits, akbar2025 full and tiny"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("name", nargs="?", metavar="PAPER/FIGURE", help="which figure; without it, what there is")
    parser.add_argument("--out", metavar="DIR", default=OUT, help=f"folder for the figure ({OUT})")
    parser.add_argument("--train", action="store_true", help="train the networks anew; goes on where it stopped")
    parser.add_argument("--scale", choices=("full", "digits", "tiny"), default="full", help=SCALES)
    parser.add_argument("--data-dir", metavar="DIR", help="with --train: folder of the data sets (NORMGAUGE_DATA)")
    parser.add_argument("--epochs", type=int, metavar="N", help="with --train: at most so many epochs a run")
    parser.add_argument("--jobs", type=int, metavar="N", help="with --train: runs side by side")
    parser.add_argument("--minutes", type=float, metavar="N", help="with --train: stop after so long")
    parser.add_argument("--json", metavar="FILE", help="write what was done as JSON; - for standard output")


def run(args: argparse.Namespace) -> int:
    """List the figures, or draw one."""
    folder = checkout()
    if args.name is None:
        listed = {
            f"{paper}/{name}": words
            for paper in papers(folder)
            for name, words in _told(folder, paper, ["--list"]).items()
        }
        grid = Grid("Figures that can be had again", ("name", "what it shows"), tuple(listed.items()))
        write_answer(args.json, lambda: {"schema": 1, "figures": listed}, lambda stream: draw_blocks([grid], stream))
        return 0
    paper, name = _known(folder, args.name)
    told = _told(folder, paper, [name, *_options(args)])
    said = [told["words"], f"Written: {told['figure']} ({plural(len(told['runs']), 'run')})"]
    write_answer(args.json, lambda: {"schema": 1, **told}, lambda stream: draw_blocks(said, stream))
    return 0


def papers(root: Path) -> list[str]:
    """The experiments that can be reproduced."""
    return sorted(path.parent.name for path in (root / "experiments").glob("*/reproduce.py"))


def _known(root: Path, wanted: str) -> tuple[str, str]:
    paper, _, name = wanted.partition("/")
    if paper not in papers(root):
        raise InputError(f"no experiment called {paper!r}; there is {', '.join(papers(root))}")
    names = _told(root, paper, ["--list"])  # each with a sentence
    if name not in names:
        raise InputError(f"{paper} has no figure {name!r}; it has {', '.join(names)}")
    return paper, name


def _options(args: argparse.Namespace) -> list[str]:
    """The options that were given, for the experiment."""
    options = ["--out", str(Path(args.out).resolve()), "--scale", args.scale, *(["--train"] if args.train else [])]
    if args.data_dir is not None:
        options += ["--data-dir", str(Path(args.data_dir).resolve())]
    for name in ("epochs", "jobs", "minutes"):
        value = getattr(args, name)
        options += [] if value is None else [f"--{name}", str(value)]
    return options


def _told(root: Path, paper: str, arguments: list[str]) -> dict[str, Any]:
    """Run an experiment's own command in a process of its own; its last line is what it says.

    Raises:
        InputError: with its last words when it fails.
    """
    paths = [str(root), str(root / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-m", f"experiments.{paper}.reproduce", *arguments],
        cwd=root,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stdout=subprocess.PIPE,
        stderr=None if sys.stderr.isatty() and "--train" in arguments else subprocess.PIPE,
        text=True,
        encoding="utf-8",
        check=False,
    )
    if done.returncode:
        words = (done.stderr or "").strip().splitlines()[-1:] or ["see above"]
        raise InputError(words[0].removeprefix("normgauge: "))
    return dict(json.loads(done.stdout.splitlines()[-1]))
