"""The check at the end of a line: its run, its number in that run, and a checksum over both and all before them.

``{"kind":"step", ...,"check":"5f1c0a3b:17:8c1d02fe"}``: a line that was changed does not fit its checksum, one of
another run has another first part, and lost lines leave a gap in the numbers. A line stays one JSON object.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from zlib import crc32

LONGEST = 64  # bytes that the check of a line can take
_SEAL = re.compile(rb',"check":"([0-9a-f]{8}):([0-9]{1,12}):([0-9a-f]{8})"\}\Z')


class Seal(NamedTuple):
    """What the check of a line says.

    Attributes:
        run: eight hexadecimal digits of the run, from `run_mark`.
        number: which line of the run it is; the header is 1.
    """

    run: str
    number: int


def run_mark(run: object) -> str:
    """The eight digits by which lines of one run know each other, from what the header calls the run."""
    return f"{crc32(str(run).encode(errors='backslashreplace')):08x}"


def sealed(line: bytes, seal: Seal) -> bytes:
    r"""The line of a record with its check.

    >>> sealed(b'{"kind":"note"}\n', Seal("5f1c0a3b", 17))
    b'{"kind":"note","check":"5f1c0a3b:17:94f65c12"}\n'
    """
    body = line.rstrip(b"\n")[:-1] + f',"check":"{seal.run}:{seal.number}:'.encode()
    return body + b'%08x"}\n' % crc32(body)


def unsealed(text: bytes) -> tuple[bytes, Seal | None, bool]:
    """A line without its newline as the record it holds, its seal, and whether the checksum holds.

    A line without a check, as they were written before there was one, comes back as it is.
    """
    text = text.rstrip()  # an editor may have ended lines its way
    found = _SEAL.search(text, max(len(text) - LONGEST, 0))
    if found is None:
        return text, None, True
    run, number, said = found.groups()
    holds = crc32(memoryview(text)[: found.start(3)]) == int(said, 16)
    return text[: found.start()] + b"}", Seal(run.decode(), int(number)), holds
