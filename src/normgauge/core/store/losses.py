"""Which lines of a file belong to the run, and what is said of the others: lost, changed, foreign, or there twice."""

from __future__ import annotations

from enum import Enum

from normgauge.core.store.follower import Line
from normgauge.core.store.lines import FORMAT

MOST = 100  # places that are named one by one


class Verdict(Enum):
    """What to do with a line: take it, leave it out, or forget all before it and take it."""

    TAKE = 1
    LEAVE = 2
    ANEW = 3


class Losses:
    """Judges the lines of a file in their order and counts what is not there.

    A file in which no line bears a check was written before there was one: its lines are taken as they are. Once a line
    bears one, each of its run must; those before it without one are taken back, unless a resumption vouches for them.

    Attributes:
        changed: lines whose check does not hold.
    """

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self.changed = 0
        self._run: str | None = None
        self._next = 1
        self._bare = 0
        self._bad: list[Line] = []
        self._said: list[str] = []
        self._more = self._foreign = self._misplaced = 0
        self._first_misplaced = 0

    def judge(self, line: Line) -> Verdict:
        """Whether a line is taken."""
        seal = line.seal
        if line.record is not None and seal == (self._run, self._next) and line.number > 1 and not self._bad:
            self._next += 1  # nearly all of them
            return Verdict.TAKE
        if line.record is None or (seal is None and self._run is not None):
            self._bad.append(line)
            self.changed += line.changed
            return Verdict.LEAVE
        if line.number == 1 and _is_header(line):
            self._begin()  # the file was begun anew
        if seal is None:
            return self._judge_bare(line)
        if self._run not in (None, seal.run):
            if not _is_header(line):
                self._foreign += 1
                return Verdict.LEAVE
            return self._another(line)
        return self._judge_sealed(line, seal.number, seal.run)

    def _judge_bare(self, line: Line) -> Verdict:
        self._flush()
        self._bare += 1
        self._next = line.number + 1
        return self._another(line) if _is_header(line) and self._bare > 1 else self._begun(line)

    def _judge_sealed(self, line: Line, number: int, run: str) -> Verdict:
        verdict = self._begun(line)
        if self._run is None and self._bare:
            vouched = (line.record or {}).get("kind") == "resume" and (line.record or {}).get("unchecked")
            if not vouched:
                lines = "line 1 bears no check as the others do and was" if line.number == 2 else ""
                lines = lines or f"lines 1 to {line.number - 1} bear no check as the others do and were"
                self._say(f"{lines} left out")
                verdict, self._bad = Verdict.ANEW, []
            self._next = number if not vouched or number < line.number else line.number
        self._run = run
        if number < self._next:
            self._misplaced += 1
            self._first_misplaced = self._first_misplaced or line.number
            return Verdict.LEAVE
        self._flush(number - self._next, line.number)
        self._next = number + 1
        return verdict

    def _begun(self, line: Line) -> Verdict:
        return Verdict.ANEW if line.number == 1 and _is_header(line) else Verdict.TAKE

    def _another(self, line: Line) -> Verdict:
        """The header of another run below lines of one: two files in one."""
        count = line.number - 1
        lines = "1 line" if count == 1 else f"{count} lines"
        self._said = [f"{lines} before line {line.number} are of another run and were left out"]
        self._bad, self._bare = [], 1
        self._run = None if line.seal is None else line.seal.run
        self._next = (line.number if line.seal is None else line.seal.number) + 1
        return Verdict.ANEW

    def _flush(self, missing: int = 0, at: int = 0) -> None:
        """Say what stands between the last line taken and this one, and what does not stand there."""
        if self._bad:
            self._say(_bad_sentence(self._bad))
        if missing > 0 and missing != len(self._bad):
            last = self._next + missing - 1
            what = f"line number {last} of the run is" if missing == 1 else ""
            what = what or f"{missing} lines of the run, numbers {self._next} to {last}, are"
            self._say(f"{what} missing before line {at} of the file")
        self._bad = []

    def _say(self, sentence: str) -> None:
        if len(self._said) < MOST:
            self._said.append(sentence)
        else:
            self._more += 1

    def sentences(self) -> list[str]:
        """What was left out, and what is missing."""
        told = [*self._said, *([_bad_sentence(self._bad)] if self._bad else [])]
        if self._more:
            told.append(f"lines are torn, changed or missing at {self._more} more places")
        if self._foreign:
            told.append(f"{_lines_are(self._foreign)} of another run and left out")
        if self._misplaced:
            told.append(f"{_lines_are(self._misplaced)} out of order or twice there, from line {self._first_misplaced}")
            told[-1] += " on, and left out"
        return told


def _is_header(line: Line) -> bool:
    return line.record is not None and line.record["kind"] == "header" and line.record.get("format") == FORMAT


def _bad_sentence(bad: list[Line]) -> str:
    first, last, size = bad[0], bad[-1], sum(line.size for line in bad)
    if len(bad) > 1:
        return f"lines {first.number} to {last.number} are torn or changed ({size} bytes) and were left out"
    if first.changed or first.record is not None:
        return f"line {first.number} was changed after it was written ({size} bytes) and was left out"
    return f"line {first.number} is torn ({size} bytes) and was left out"


def _lines_are(count: int) -> str:
    return "1 line is" if count == 1 else f"{count} lines are"
