"""Going on with a run file: what stands in it is checked, what is torn is closed off, and the numbers go on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from normgauge.core.errors import StoreError
from normgauge.core.store.collector import with_layers
from normgauge.core.store.lines import FORMAT, Record, parse_record
from normgauge.core.store.numbers import read_number
from normgauge.core.store.places import newest
from normgauge.core.store.seal import unsealed
from normgauge.core.store.writer import Writer, begun_writer, create, filled_header, header_line, lock_file

LATER = b'"layers"'  # in every line that brings layers, and in few others


def resume(path: str | os.PathLike[str], header: Mapping[str, Any], *, step: int | None = None) -> Writer:
    """Go on with the newest run file of a folder, or with the file named; begin one where there is none.

    Args:
        path: as for `create`.
        header: what the run is now; its layers must be those of the file.
        step: the step the training goes on from, where it is known; the last of the file otherwise.

    Returns:
        A writer that holds the file's lock.

    Raises:
        StoreError: when the file is being written by another process, is another network's, or cannot be written.
    """
    file = newest(path)
    if file is None:
        return create(path, header)
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_APPEND)
    except OSError as error:
        raise StoreError(f"cannot write {file}: {error.strerror}; give another folder for the run") from None
    if not lock_file(descriptor):
        os.close(descriptor)
        raise StoreError(
            f"{file} is still being written by another process or monitor; close that one or give another folder"
        )
    try:
        return _continued(file, descriptor, filled_header(header), step)
    except StoreError:
        os.close(descriptor)
        raise


def _continued(file: Path, descriptor: int, header: Record, step: int | None) -> Writer:
    data = file.read_bytes()
    *whole, tail = data.split(b"\n")
    if not whole:  # killed while its header was written: there is nothing to go on with
        os.ftruncate(descriptor, 0)
        return begun_writer(Writer(file, header, descriptor), header_line(header))
    stored = _checked(whole[0])
    if stored is None or stored.get("format") != FORMAT:
        damaged = "has a damaged header" if FORMAT.encode() in whole[0] else "is no run file"
        raise StoreError(f"{file} {damaged}; give another folder or name for the run")
    for line in whole[1:]:
        later = _checked(line) if LATER in line else None
        if later is not None and later["kind"] == "layers":
            stored = with_layers(stored, later)
    _check_fits(file, stored, header)
    torn = len(tail) if tail and _checked(tail) is None else 0
    lines = [*whole, tail] if tail else whole
    numbers = [seal.number for _, seal, holds in map(unsealed, lines) if seal is not None and holds]
    writer = Writer(file, stored, descriptor)
    writer.go_on(max(numbers, default=len(lines)), len(data), torn=bool(tail))
    writer.resumed_from, writer.elapsed = _last(lines)
    record = {"kind": "resume", "step": writer.resumed_from if step is None else step, "time": writer.elapsed}
    record |= {"created": header["created"], "versions": header.get("versions"), "torn_bytes": torn}
    writer.append(record | ({} if numbers else {"unchecked": len(lines)}))
    if writer.lost:
        raise StoreError(f"cannot write {file}: the disk may be full; make room or give another folder")
    return writer


def _checked(line: bytes) -> Record | None:
    """The record of a line; None where it is torn or was changed."""
    body, _, holds = unsealed(line)
    return parse_record(body) if holds else None


def _last(lines: list[bytes]) -> tuple[int | None, float]:
    """Step and time of the last step line."""
    for line in reversed(lines):
        record = _checked(line)
        if record is not None and record["kind"] == "step" and isinstance(record.get("step"), int):
            return record["step"], read_number(record.get("time")) or 0.0
    return None, 0.0


def _check_fits(file: Path, stored: Record, header: Record) -> None:
    there, here = (
        [(layer.get("name"), tuple(layer.get("shape") or ())) for layer in h.get("layers", [])]
        for h in (stored, header)
    )
    if there == here:
        return
    pairs = ((a, b) for a, b in zip(there, here, strict=False) if a != b)
    old, new = next(pairs, (None, None))
    said = f"{len(there)} layers there, {len(here)} here" if old is None else f"{old} there, {new} here"
    raise StoreError(f"{file} is the run of another network: {said}; give another folder for the run")
