"""Ways to damage a run file at random; each takes the bytes, another run's bytes and a source of chance."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

Corruption = Callable[[bytes, bytes, Random], bytes]


def flip_bits(data: bytes, other: bytes, chance: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 8, 200))):
        changed[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def change_digits(data: bytes, other: bytes, chance: Random) -> bytes:
    """Other digits for some: every line stays the JSON it was."""
    places = [i for i, byte in enumerate(data) if chr(byte).isdigit()]
    changed = bytearray(data)
    for place in chance.sample(places, chance.choice((1, 1, 5, 50))):
        changed[place] = ord(chance.choice("0123456789"))
    return bytes(changed)


def truncate(data: bytes, other: bytes, chance: Random) -> bytes:
    return data[: chance.randrange(len(data))]


def behead(data: bytes, other: bytes, chance: Random) -> bytes:
    return data[chance.randrange(len(data)) :]


def delete_piece(data: bytes, other: bytes, chance: Random) -> bytes:
    first = chance.randrange(len(data))
    return data[:first] + data[first + chance.choice((1, 10, 1000, 20_000)) :]


def delete_lines(data: bytes, other: bytes, chance: Random) -> bytes:
    lines = data.splitlines(keepends=True)
    first = chance.randrange(len(lines))
    return b"".join(lines[:first] + lines[first + chance.randint(1, 20) :])


def repeat_line(data: bytes, other: bytes, chance: Random) -> bytes:
    lines = data.splitlines(keepends=True)
    lines.insert(chance.randrange(len(lines)), chance.choice(lines))
    return b"".join(lines)


def swap_lines(data: bytes, other: bytes, chance: Random) -> bytes:
    lines = data.splitlines(keepends=True)
    a, b = chance.sample(range(len(lines)), 2)
    lines[a], lines[b] = lines[b], lines[a]
    return b"".join(lines)


def shuffle_lines(data: bytes, other: bytes, chance: Random) -> bytes:
    lines = data.splitlines(keepends=True)
    chance.shuffle(lines)
    return b"".join(lines)


def mix_lines(data: bytes, other: bytes, chance: Random) -> bytes:
    """Lines of another run in the place of some of this one."""
    lines, foreign = data.splitlines(keepends=True), other.splitlines(keepends=True)
    for _ in range(chance.choice((1, 3, 20))):
        place = chance.randrange(len(lines))
        lines[place : place + chance.randint(0, 1)] = [foreign[place % len(foreign)]]
    return b"".join(lines)


def join_files(data: bytes, other: bytes, chance: Random) -> bytes:
    return chance.choice((data + other, other + data, data + data, other[: len(other) // 2] + data))


def graft(data: bytes, other: bytes, chance: Random) -> bytes:
    """The first part of one line with the last of another: it may be JSON."""
    lines = data.splitlines(keepends=True)
    a, b = chance.sample(range(len(lines)), 2)
    cut = chance.randrange(min(len(lines[a]), len(lines[b])))
    lines[a] = lines[a][:cut] + lines[b][cut:]
    return b"".join(lines)


def overwrite(data: bytes, other: bytes, chance: Random) -> bytes:
    first, size = chance.randrange(len(data)), chance.choice((1, 16, 512, 4096))
    filling = chance.choice((b"\0" * size, chance.randbytes(size), b"\n" * size, b" " * size))
    return data[:first] + filling + data[first + size :]


def insert(data: bytes, other: bytes, chance: Random) -> bytes:
    place = chance.randrange(len(data))
    return data[:place] + chance.choice((b"\n", b"\0", b"0", b"9", b"-", b"\xff", b"}\n{", b"1e9")) + data[place:]


def lose_newlines(data: bytes, other: bytes, chance: Random) -> bytes:
    return chance.choice((data.replace(b"\n", b"", 1), data.replace(b"\n", b"\r\n"), data.replace(b"\n", b"\r")))


CORRUPTIONS: tuple[Corruption, ...] = (
    flip_bits, change_digits, truncate, behead, delete_piece, delete_lines, repeat_line, swap_lines, shuffle_lines,
    mix_lines, join_files, graft, overwrite, insert, lose_newlines,
)  # fmt: skip
