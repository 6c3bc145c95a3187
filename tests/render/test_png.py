from __future__ import annotations

import base64
import struct
import zlib

import pytest

from normgauge.render.png import COLOUR, GREY, INDEXED, png_address


@pytest.mark.parametrize(
    ("kind", "rows", "more"),
    [(GREY, [b"\x00\xff", b"\x7f\x01"], ()), (COLOUR, [b"\x01\x02\x03\x04\x05\x06"], ()),
     (INDEXED, [b"\x00\x01"], ((b"PLTE", b"\x00" * 6),))],
    ids=["grey", "colour", "indexed"],
)  # fmt: skip
def test_an_address_holds_every_chunk_with_its_checksum_and_every_pixel(kind, rows, more):
    address = png_address(rows, 2, kind, *more)
    data = base64.b64decode(address.removeprefix("data:image/png;base64,"))
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, place = {}, 8
    while place < len(data):
        (size,) = struct.unpack(">I", data[place : place + 4])
        name, body = data[place + 4 : place + 8], data[place + 8 : place + 8 + size]
        assert struct.unpack(">I", data[place + 8 + size : place + 12 + size]) == (zlib.crc32(name + body),)
        chunks[name] = body
        place += 12 + size
    assert list(chunks) == [b"IHDR", *(name for name, _ in more), b"IDAT", b"IEND"]
    assert struct.unpack(">IIBB", chunks[b"IHDR"][:10]) == (2, len(rows), 8, kind)
    assert zlib.decompress(chunks[b"IDAT"]) == b"".join(b"\0" + row for row in rows)
