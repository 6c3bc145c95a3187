"""Elements of HTML and SVG, and names on a terminal: whatever comes from outside is made harmless here, and only here.

An element escapes what is put into it unless that is an element itself, so that nobody has to think of it.

>>> tag("p", "a < b", tag("b", "bold"), [" and ", None, "more"], class_="note", hidden=False, data_row=3)
'<p class="note" data-row="3">a &lt; b<b>bold</b> and more</p>'
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html import escape
from typing import TypeAlias

# control characters, marks that turn the direction of a line, separators of lines, halves of surrogate pairs
STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
POWER = re.compile(r"(?<=\b10)\^([-−]?\d+(?:\.\d+)?)")
EMPTY = frozenset({"br", "circle", "image", "img", "line", "meta", "path", "polygon", "polyline", "rect"})


class Markup(str):
    """Text that is markup already; made by `tag`, `markup` and `words`, and from files of the package."""

    __slots__ = ()


Content: TypeAlias = "str | Iterable[Content] | None"


def clean(text: str) -> str:
    r"""The text with everything that would steer a terminal, or turn a line around, spelled out as JSON spells it.

    >>> print(clean("a\x1b[2J, b\u202e"))
    a\u001b[2J, b\u202e
    """
    return STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def markup(*content: Content) -> Markup:
    """All of it, one after the other: elements as they are, anything else escaped."""
    return Markup("".join(_pieces(content)))


def _pieces(content: Iterable[Content]) -> Iterator[str]:
    for part in content:
        if isinstance(part, str):
            yield part if isinstance(part, Markup) else escape(clean(part))
        elif part is not None:
            yield from _pieces(part)


def tag(name: str, *content: Content, **attributes: str | float | bool | None) -> Markup:
    """An element.

    Args:
        name: of the element.
        content: what stands in it, in order.
        attributes: by name, ``_`` for ``-`` and one at the end for nothing; those that are None or False are left out.
    """
    told = "".join(_attribute(key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items())
    inside = markup(*content)
    return Markup(f"<{name}{told}/>" if not inside and name in EMPTY else f"<{name}{told}>{inside}</{name}>")


def _attribute(name: str, value: str | float | bool | None) -> str:
    if value is None or value is False:
        return ""
    if value is True:
        return f" {name}"
    shown = f"{value:.1f}" if isinstance(value, float) else str(value) if isinstance(value, int) else value
    return f' {name}="{markup(shown)}"'


def words(sentence: str) -> Markup:
    """A sentence, with powers of ten raised; an element as it is.

    >>> words("10^1.5 < 10^−2")
    '10<sup>1.5</sup> &lt; 10<sup>-2</sup>'
    """
    if isinstance(sentence, Markup):
        return sentence
    first, raised = powers(sentence)
    return markup(first, ((tag("sup", power), after) for power, after in raised))


def powers(sentence: str) -> tuple[str, list[tuple[str, str]]]:
    """A sentence up to its first power of ten, then each exponent with what follows it."""
    first, *rest = POWER.split(sentence)
    return first, [(power.replace("−", "-"), after) for power, after in zip(rest[::2], rest[1::2], strict=True)]
