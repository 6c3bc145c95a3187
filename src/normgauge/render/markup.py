"""Elements of HTML and SVG, and names on a terminal: whatever comes from outside is made harmless here, and only here.

An element escapes what is put into it unless that is an element itself, so that nobody has to think of it.

>>> tag("p", "a < b", tag("b", "bold"), [" and ", None, "more"], class_="note", hidden=False, data_row=3)
'<p class="note" data-row="3">a &lt; b<b>bold</b> and more</p>'
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from html import escape
from typing import TypeAlias

# control characters, marks that turn the direction of a line, separators of lines, halves of surrogate pairs
STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
UNSAFE = re.compile(f"[&<>\"']|{STEERING.pattern}")
POWER = re.compile(r"(?<=\b10)\^([-−]?\d+(?:\.\d+)?)")
EMPTY = frozenset({"br", "circle", "image", "img", "line", "meta", "path", "polygon", "polyline", "rect"})


class Markup(str):
    """Text that is markup already; made by `tag`, `markup` and `sentence_markup`, and from files of the package."""

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
    pieces: list[str] = []
    _add(pieces, content)
    return Markup("".join(pieces))


def _add(pieces: list[str], content: Iterable[Content]) -> None:
    for part in content:
        if isinstance(part, Markup):
            pieces.append(part)
        elif isinstance(part, str):
            pieces.append(_safe(part))
        elif part is not None:
            _add(pieces, part)


def _safe(text: str) -> str:
    return escape(clean(text)) if UNSAFE.search(text) else text  # nearly all texts are harmless, and searching is fast


def tag(name: str, *content: Content, **attributes: str | float | bool | None) -> Markup:
    """An element.

    Args:
        name: of the element.
        content: what stands in it, in order.
        attributes: by name, ``_`` for ``-`` and one at the end for nothing; those that are None or False are left out.
    """
    told = f"<{name}"
    for key, value in attributes.items():
        if isinstance(value, float):
            told += f'{_spelled(key)}="{value:.1f}"'
        elif value is True:
            told += _spelled(key)
        elif value is not None and value is not False:
            told += f'{_spelled(key)}="{value if isinstance(value, Markup) else _safe(str(value))}"'
    pieces = [told, ">"]
    _add(pieces, content)
    if not any(pieces[2:]) and name in EMPTY:
        return Markup(f"{told}/>")
    pieces.append(f"</{name}>")
    return Markup("".join(pieces))


def in_row(kinds: Iterable[Markup], contents: Iterable[str]) -> Markup:
    """One element a content, each like the empty one of its kind: for tables, which have thousands of them."""
    pieces: list[str] = []
    for kind, content in zip(kinds, contents, strict=True):
        start, end = _halves(kind)
        pieces += (start, _worded(content), end)
    return Markup("".join(pieces))


@cache
def _halves(kind: Markup) -> tuple[str, str]:
    start, _, end = kind.partition("></")
    return f"{start}>", f"</{end}"


@cache
def _spelled(key: str) -> str:
    return " " + key.rstrip("_").replace("_", "-")


def sentence_markup(sentence: str) -> Markup:
    """A sentence, with powers of ten raised; an element as it is.

    >>> sentence_markup("10^1.5 < 10^−2")
    '10<sup>1.5</sup> &lt; 10<sup>-2</sup>'
    """
    return Markup(_worded(sentence))


def _worded(sentence: str) -> str:
    if isinstance(sentence, Markup):
        return sentence
    if "10^" not in sentence:
        return _safe(sentence)
    first, raised = powers(sentence)
    return markup(first, ((tag("sup", power), after) for power, after in raised))


def powers(sentence: str) -> tuple[str, list[tuple[str, str]]]:
    """A sentence up to its first power of ten, then each exponent with what follows it."""
    first, *rest = POWER.split(sentence)
    return first, [(power.replace("−", "-"), after) for power, after in zip(rest[::2], rest[1::2], strict=True)]
