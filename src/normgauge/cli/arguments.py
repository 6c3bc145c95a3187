"""What several commands take: numbers, a network with its batch, and the readings of a file or a reference."""

from __future__ import annotations

import argparse
import contextlib
import math
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from normgauge.cli.output import Report, complain, is_watched, progress_bar, progress_lines
from normgauge.core import reference
from normgauge.core.errors import LoadError, ReadingError
from normgauge.core.reading import Reading
from normgauge.core.stored import read_items
from normgauge.loading import MODEL_FORMS, find_batch, is_folder, load_model

if TYPE_CHECKING:
    from torch import nn

CODE_PLACE = re.compile(r"\.py:\w+$")
CODE = "file.py:function or package.module:callable"


def number_parser(words: str = "", passes: Callable[[float], bool] = math.isfinite) -> Callable[[str], float]:
    """Reads a finite number that passes a test; what does not is refused with ``words``."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"expected a number, got {text!r}") from None
        if not math.isfinite(value) or not passes(value):
            expected = words if math.isfinite(value) else "a finite number"
            raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r}")
        return value

    return parse


parse_finite = number_parser()
parse_positive = number_parser("a positive number", lambda value: value > 0)


def whole_parser(words: str, least: int = 0, most: float = math.inf) -> Callable[[str], int]:
    """A whole number between two ends; anything else is refused with ``words``."""

    def parse(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"expected a whole number{words}, got {text!r}")
        return int(text)

    return parse


@contextlib.contextmanager
def users_code() -> Iterator[Report | None]:
    """Where the user's code runs: what it prints goes to standard error, beside a bar or lines for what takes long."""
    with contextlib.redirect_stdout(sys.stderr), progress_bar() if is_watched() else progress_lines() as progress:
        yield progress


@contextlib.contextmanager
def open_network(args: argparse.Namespace) -> Iterator[tuple[nn.Module, Any, Report | None]]:
    """The model and the batch that are named, and a bar for the work on them.

    For a folder of weights without a batch one is made, which is said.

    Raises:
        LoadError: for a model that is not there.
    """
    if args.batch is None and ":" not in args.model and not Path(args.model).exists():
        raise LoadError(f"model {args.model!r}: expected {MODEL_FORMS}, got no such file or folder")
    with users_code() as progress:
        if args.batch is not None or not is_folder(args.model):
            draw = find_batch(args.batch)  # says what is wrong with it before a large model is built
            model = load_model(args.model)
            batch = draw()
        else:
            from normgauge.loading.made_batch import made_batch

            model = load_model(args.model)
            batch, said = made_batch(args.model, model)
            complain(said)
        _warn(args.model, model, batch)
        yield model, batch, progress


def _warn(spec: str, model: nn.Module, batch: Any) -> None:
    """Say in a line each that padding is read as words, and that a folder's own pooling is not applied."""
    from normgauge.loading.counted_output import folder_pooling, padding_warning
    from normgauge.loading.hugging_face import model_folder

    folder = model_folder(spec)
    for said in (padding_warning(model, batch), "" if folder is None else folder_pooling(folder)[1]):
        if said:
            complain(said)


def readings_at(name: str) -> list[Reading]:
    """The readings of a file or a reference.

    Raises:
        ReadingError: when there are none; the file is named.
    """
    if name.startswith(reference.PREFIX):
        return reference.load_reference(name)
    if CODE_PLACE.search(name):
        raise ReadingError(
            f"{name}: expected a file of readings, got a network; measure it first: "
            f"normgauge gauge {name} --batch BATCH --json FILE"
        )
    items = read_items(name)
    try:
        return [Reading.from_json(item) for item in items]
    except ReadingError as error:
        raise ReadingError(f"{name}: {error}") from None
