"""Contour lines of a function on a square grid, by marching squares."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

Point = tuple[float, float]
Key = tuple[int, int, int]  # an edge of the grid: its lower left corner, 0 to the right and 1 upwards
# which edges of a cell (bottom 0, right 1, top 2, left 3) a contour joins, by the corners above the level
CASES: dict[int, tuple[tuple[int, int], ...]] = {
    1: ((3, 0),),
    2: ((0, 1),),
    3: ((3, 1),),
    4: ((1, 2),),
    5: ((3, 2), (0, 1)),
    6: ((0, 2),),
    7: ((3, 2),),
    8: ((2, 3),),
    9: ((0, 2),),
    10: ((3, 0), (1, 2)),
    11: ((1, 2),),
    12: ((1, 3),),
    13: ((0, 1),),
    14: ((0, 3),),
}


def contours(values: Sequence[Sequence[float]], level: float, reach: float) -> list[list[Point]]:
    """Lines along which a function has one value.

    Args:
        values: ``values[i][j]`` at x_i, y_j, both equally spaced on [−reach, reach].
        level: the value.
        reach: half of the square's side.

    Returns:
        Chains of points; a closed one ends where it begins.
    """
    joined: dict[Key, list[Key]] = {}
    for a, b in _segments(values, level):
        joined.setdefault(a, []).append(b)
        joined.setdefault(b, []).append(a)
    chains = []
    # open chains from their ends first, closed ones after
    for start in sorted(joined, key=lambda k: (len(joined[k]), k)):
        if joined[start]:
            chain = _walk(joined, start)
            chains.append([_place(values, level, reach, key) for key in chain])
    return chains


def _segments(values: Sequence[Sequence[float]], level: float) -> Iterator[tuple[Key, Key]]:
    for i in range(len(values) - 1):
        for j in range(len(values) - 1):
            corners = (values[i][j], values[i + 1][j], values[i + 1][j + 1], values[i][j + 1])
            case = sum(1 << k for k, value in enumerate(corners) if value > level)
            edges: tuple[Key, ...] = ((i, j, 0), (i + 1, j, 1), (i, j + 1, 0), (i, j, 1))
            for a, b in CASES.get(case, ()):
                yield edges[a], edges[b]


def _walk(joined: dict[Key, list[Key]], start: Key) -> list[Key]:
    """Follow segments from an edge, using each once."""
    chain, at = [start], start
    while joined[at]:
        after = joined[at].pop()
        joined[after].remove(at)
        chain.append(after)
        at = after
    return chain


def _place(values: Sequence[Sequence[float]], level: float, reach: float, key: Key) -> Point:
    i, j, up = key
    low, high = values[i][j], values[i][j + 1] if up else values[i + 1][j]
    part = (level - low) / (high - low)
    step = 2 * reach / (len(values) - 1)
    x, y = i + (0 if up else part), j + (part if up else 0)
    return step * x - reach, step * y - reach
