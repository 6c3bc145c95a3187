"""A picture of one byte a cell as a PNG, for maps too large to draw cell by cell."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence

ABSENT, NOT_FINITE, LEVELS = 0, 255, 254
RAMP = ((38, 38, 94), (33, 102, 136), (52, 158, 133), (160, 200, 90), (250, 230, 80))
WARNING = (220, 40, 120)


def palette() -> bytes:
    """Red, green, blue of each level: 0 for no value, then the ramp, then what is not finite."""
    colours = [(128, 128, 128)]
    for level in range(LEVELS):
        place = level / (LEVELS - 1) * (len(RAMP) - 1)
        left = min(int(place), len(RAMP) - 2)
        share = place - left
        colours.append(tuple(round(a + (b - a) * share) for a, b in zip(RAMP[left], RAMP[left + 1], strict=True)))  # type: ignore[arg-type]
    return bytes(value for colour in (*colours, WARNING) for value in colour)


def picture(rows: Sequence[bytes]) -> str:
    """The rows, each a byte a cell, as a ``data:`` address."""
    size = struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 3, 0, 0, 0)
    raw = zlib.compress(b"".join(b"\0" + row for row in rows), 9)
    chunks = ((b"IHDR", size), (b"PLTE", palette()), (b"tRNS", b"\0"), (b"IDAT", raw), (b"IEND", b""))
    data = b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, content) for kind, content in chunks)
    return "data:image/png;base64," + base64.b64encode(data).decode()


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
