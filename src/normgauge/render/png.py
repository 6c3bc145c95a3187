"""Pictures of one byte a value as PNG, to stand in a page as they are."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence

GREY, COLOUR, INDEXED = 0, 2, 3


def png_address(rows: Sequence[bytes], width: int, kind: int, *more: tuple[bytes, bytes]) -> str:
    """The rows as a ``data:`` address.

    Args:
        rows: of bytes, from the top.
        width: pixels in a row.
        kind: what a pixel is: ``GREY``, three bytes of ``COLOUR``, or ``INDEXED``.
        more: names and contents of further chunks, such as the palette of an indexed picture.
    """
    size = struct.pack(">IIBBBBB", width, len(rows), 8, kind, 0, 0, 0)
    raw = zlib.compress(b"".join(b"\0" + row for row in rows), 9)
    chunks = ((b"IHDR", size), *more, (b"IDAT", raw), (b"IEND", b""))
    data = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in chunks
    )
    return "data:image/png;base64," + base64.b64encode(data).decode()
