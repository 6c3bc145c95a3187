"""How names and questions are written, and how they are read."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from normgauge.core.claim import Entry
from normgauge.core.places import SPELLINGS

NORMS = re.compile(r"\b(batch|layer|group|instance|weight)[ -]?norm(?:alization|s)?\b", re.IGNORECASE)
MARKS = ".:!?…\"'“”‘’"  # of the sentence that a name stands in
FILLING = re.compile(  # words of a question are no names
    "an?|the|of|in|on|at|by|to|for|from|with|about|and|or|it|this|that|is|are|was|were|does|do|did|what|which|why|how|"
    "whether|true|false|right|correct|hold|claims?|survives?", re.IGNORECASE,
)  # fmt: skip
ASKING = re.compile(r"\s*(?:is|are|was|were|does|do|did)\b|(?!\s*which\b).*\?\s*$", re.IGNORECASE)  # for a verdict
COUNTS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
PLAIN: dict[str, str | Callable[[re.Match[str]], str]] = {  # how it is written -> how it is read
    rf"(?i:\b({'|'.join(SPELLINGS.values())})\s+({'|'.join(COUNTS)})\b)": lambda found: (
        f"{found[1]} {COUNTS.index(found[2].lower()) + 1}"
    ),
    r"['’]s\b": "",  # Than's
    r"\(([A-Z][^()]*)\)": r" \1 ",  # (Than, 2025)
    r"[\s,]*\(?\b((?:19|20)\d\d)\b\)?": r" \1",  # Than, 2025; Than (2025)
}  # fmt: skip


def read_plainly(text: str) -> str:
    """A name as the look-up reads it.

    >>> read_plainly("Than's Lemma one"), read_plainly("Theorem 6 (Than, 2025)"), read_plainly("Than (2025), Eq. (8)")
    ('Than Lemma 1', 'Theorem 6  Than 2025 ', 'Than 2025, Eq. (8)')
    """
    for written, read in PLAIN.items():
        text = re.sub(written, read, text)
    return text


def words_of(entry: Entry) -> str:
    """What a claim can be found by."""
    return f"{entry.words} {entry.reading} {' '.join(entry.id.split('.')[1:])} {entry.at} "


def has_words(text: str, words: Sequence[str]) -> bool:
    """Whether a text has these words, each whole."""
    text = spelled(text)
    return all(re.search(rf"(?<!\w){re.escape(spelled(word))}(?!\w|\.\d)", text) for word in words)


def spelled(text: str) -> str:
    """Lower case, and "batch normalization" as "batchnorm"."""
    return NORMS.sub(r"\1norm", text).lower()
