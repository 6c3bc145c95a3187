"""Each field of what is stored is declared once: name, type, unit and a sentence.

A record is a class whose annotations carry `Told`. Its JSON form, the way back, what is wrong with a file and the
tables of docs/json.md follow from them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import MISSING, dataclass, fields
from enum import StrEnum
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    NamedTuple,
    Self,
    TypedDict,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from normgauge.core.bound import Scope
from normgauge.core.errors import InputError, ReadingError
from normgauge.core.interval import LogInterval
from normgauge.core.spelled import from_log10, spell_number, to_log10, unspell_number

F = TypeVar("F", bound=Callable[..., Any])
LARGEST = 1e308  # JSON has longer numbers than float64
REQUIRED: Any = object()


@dataclass(frozen=True, slots=True, eq=False)
class Told:
    """What is said of a field beside its name and type; before a property's function, that it is stored too.

    Attributes:
        sentence: what it means, in Markdown.
        key: its name in files, where that is another; ``log_x`` is ``log10_x`` there.
        absent: what stands for it in files of older versions that lack it; none may lack it where this is not given.
        since: the schema that brought it.
        varies: it differs from run to run, or with the machine.
        minimised: the balanced bound enters it, which is the result of a minimisation.
        source: paper and number of a published quantity.
    """

    sentence: str
    key: str = ""
    absent: Any = REQUIRED
    since: int = 1
    varies: bool = False
    minimised: bool = False
    source: tuple[str, str] | None = None

    def __call__(self, function: F) -> F:
        """Mark what a property computes as stored."""
        vars(function)["told"] = self
        return function


class FieldForm(NamedTuple):
    """How values of a type are stored: in words, to JSON, and back; what does not fit raises `Misfit`."""

    words: str
    out: Callable[[Any], Any]
    into: Callable[[Any], Any]


class Field(NamedTuple):
    """A declared field; only those with a place in the constructor are given to it."""

    name: str
    key: str
    form: FieldForm
    told: Told
    given: bool


class Misfit(Exception):
    """A stored value that does not fit its field, or is not there; those who look inside something add its place."""

    def __init__(self, expected: str, value: Any = None) -> None:
        self.expected, self.value, self.place = expected, value, ""

    def within(self, part: str) -> Misfit:
        """Add the place it was found in, and return the error itself."""
        self.place = part + "." * (self.place[:1] not in ("", "[")) + self.place
        return self

    def __str__(self) -> str:
        if not self.expected:
            return f"the field '{self.place}' is missing"
        try:
            shown = json.dumps(self.value, ensure_ascii=False)
        except (TypeError, ValueError):
            shown = type(self.value).__name__
        return f"{self.place}: expected {self.expected}, got {shown if len(shown) <= 40 else f'{shown[:40]}…'}"

    def sentence(self, noun: str) -> str:
        """What is wrong with the whole."""
        if not self.expected:
            return f"the {noun} lacks the field '{self.place}'; was the file cut or edited?"
        self.place = self.place or f"the {noun}"
        return f"the {noun} holds a field of the wrong kind: {self}; was the file edited?"


class Stored:
    """A declared record: its JSON form, and the way back."""

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        """As strict JSON, with decimal logarithms."""
        told: dict[str, Any] = form_of(type(self)).out(self)
        return told

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Rebuild the record from its JSON form; the inverse of `to_json`.

        Raises:
            ReadingError: for a field that is missing or of the wrong kind; the first one is named.
        """
        owner: Any = cls
        given = {field.name for field in declared_fields(owner) if field.given}
        if any(f.default is f.default_factory is MISSING and f.name not in given for f in fields(owner)):
            raise ReadingError(f"{cls.__name__} is written to files and not read back from them")
        try:
            made: Self = form_of(cls).into(data)
        except Misfit as wrong:
            raise ReadingError(wrong.sentence(cls.__name__.lower())) from None
        return made

    def save(self, path: str | Path) -> None:
        """Write `to_json` to a file.

        Raises:
            InputError: when it cannot be written.
        """
        try:
            Path(path).write_text(json.dumps(self.to_json(), allow_nan=False, indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise InputError(f"cannot write {path}: {error.strerror}; give a file in a folder that exists") from None


@cache
def declared_fields(cls: type) -> tuple[Field, ...]:
    """The fields of a record in the order of its JSON form: constants and attributes, then properties."""
    found = []
    for name, hint in get_type_hints(cls, include_extras=True).items():
        constant = get_origin(hint) is ClassVar
        inner = get_args(hint)[0] if constant else hint
        for told in inner.__metadata__ if get_origin(inner) is Annotated else ():
            if isinstance(told, Told):
                found.append(Field(name, told.key or _key(name), form_of(inner), told, not constant))
    for name, item in vars(cls).items():
        if isinstance(item, property) and "told" in vars(item.fget):
            returned = get_type_hints(item.fget, include_extras=True)["return"]
            told = vars(item.fget)["told"]
            found.append(Field(name, told.key or _key(name), form_of(returned), told, False))
    return tuple(found)


def _key(name: str) -> str:
    return f"log10_{name.removeprefix('log_')}" if name.startswith("log_") else name


def form_of(hint: Any) -> FieldForm:
    """How a type is stored; an annotation may name another form, or the record whose fields a table has."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return form_of(next((item for item in args[1:] if isinstance(item, FieldForm | type)), args[0]))
    if isinstance(hint, FieldForm):
        return hint
    if origin in (Union, UnionType):
        return _either(sorted(args, key=lambda arg: arg is not NoneType))
    if origin is tuple:
        named = get_origin(args[0]) is tuple and get_args(args[0])[0] is str
        return _pairs(form_of(get_args(args[0])[1])) if named else _each(form_of(args[0]))
    if origin in (dict, Mapping):
        return _table(form_of(args[1]))
    if hint in PLAIN:
        return PLAIN[hint]
    if issubclass(hint, StrEnum):
        return plain_form(f"one of {', '.join(hint)}", lambda value: value in list(hint), str, hint, "word")
    return record_form(hint)


@cache
def record_form(cls: type) -> FieldForm:
    """An object with the fields of ``cls``. Others are left out, or kept where ``cls`` only says what a table holds."""
    fields, table = declared_fields(cls), is_typeddict(cls)
    known = {field.key: field.form.out for field in fields}
    stored = [(field.key, field.name, field.form.out) for field in fields]
    read = [(f.key, f.form.into, f.told.since > 1, f.told.absent, f.given and f.name) for f in fields]

    def out(value: Any) -> Any:
        if table:
            return {key: known[key](item) if key in known else item for key, item in value.items()}
        return {key: tell(getattr(value, name)) for key, name, tell in stored}

    def into(value: Any) -> Any:
        old = _object(value).get("schema") == 1
        made = {key: item for key, item in value.items() if key not in known} if table else {}
        try:
            for key, take, later, absent, name in read:
                if key in value and not (later and old):
                    item = take(value[key])
                elif absent is REQUIRED or (later and not old):
                    raise Misfit("")
                elif table:
                    continue
                else:
                    item = copy(absent)
                if name:
                    made[name] = item
        except Misfit as wrong:
            raise wrong.within(key) from None
        return made if table else cls(**made)

    return FieldForm("object", out, into)


def plain_form(
    expected: str,
    fits: Callable[[Any], bool],
    out: Callable[[Any], Any] = lambda value: value,
    back: Callable[[Any], Any] = lambda value: value,
    words: str = "",
) -> FieldForm:
    """A form that holds no others."""

    def into(value: Any) -> Any:
        if not fits(value):
            raise Misfit(expected, value)
        return back(value)

    return FieldForm(words or expected.removeprefix("a "), out, into)


def _read(take: Callable[[Any], Any], items: Iterable[tuple[Any, Any]], place: str) -> list[Any]:
    """What the items are, each by its place."""
    done = []
    for at, item in items:
        try:
            done.append(take(item))
        except Misfit as wrong:
            raise wrong.within(place.format(at)) from None
    return done


def _each(form: FieldForm) -> FieldForm:
    words, out, take = form
    listed = plain_form("a list", lambda value: isinstance(value, list | tuple)).into
    return FieldForm(
        f"[{words}]",
        lambda value: [out(item) for item in value],
        lambda value: tuple(_read(take, enumerate(listed(value)), "[{}]")),
    )


def _table(form: FieldForm) -> FieldForm:
    words, out, take = form
    return FieldForm(
        f"{{name: {words}}}",
        lambda value: {key: out(item) for key, item in value.items()},
        lambda value: dict(zip(value, _read(take, _object(value).items(), "{}"), strict=True)),
    )


def _pairs(form: FieldForm) -> FieldForm:
    table = _table(form)
    return FieldForm(table.words, lambda value: table.out(dict(value)), lambda value: tuple(table.into(value).items()))


def _either(hints: list[Any]) -> FieldForm:
    """The first form whose type a value has; the last for all others."""
    forms = [form_of(hint) for hint in hints]
    types = [get_origin(hint) or hint for hint in hints[:-1]]
    first = [((list, tuple) if type_ is tuple else type_, *form) for type_, form in zip(types, forms, strict=False)]
    _, tell_rest, take_rest = forms[-1]

    def out(value: Any) -> Any:
        for type_, _, tell, _ in first:
            if isinstance(value, type_):
                return tell(value)
        return tell_rest(value)

    def into(value: Any) -> Any:
        for type_, _, _, take in first:
            if isinstance(value, type_):
                return take(value)
        return take_rest(value)

    words = [form.words for form in forms]
    return FieldForm(" or ".join(sorted(words, key="null".__eq__)), out, into)


def _is_number(value: Any) -> bool:
    return isinstance(value, (float, int)) and not isinstance(value, bool) and abs(value) <= LARGEST


def _is_spelled(value: Any) -> bool:
    return _is_number(value) or value in ("inf", "-inf")


def _scope(value: Any) -> Scope:
    try:
        return Scope.parse(PLAIN[str].into(value))
    except InputError:
        raise Misfit("point, global or ball:RADIUS", value) from None


def _interval(ends: Any) -> LogInterval:
    read = record_form(Ends).into(ends)
    return LogInterval(min(read["lower"], read["upper"]), read["upper"])


NUMBER = 'a number, "inf" or "-inf"'
_object = plain_form("an object", lambda value: isinstance(value, Mapping)).into
PLAIN: dict[Any, FieldForm] = {
    NoneType: plain_form("null", lambda value: value is None),
    str: plain_form("a text", lambda value: isinstance(value, str)),
    bool: plain_form("true or false", lambda value: isinstance(value, bool)),
    int: plain_form(
        "a whole number", lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= 0
    ),
    float: plain_form(NUMBER, _is_spelled, spell_number, unspell_number, "number"),
    Scope: FieldForm("scope", str, _scope),
    LogInterval: FieldForm(
        "enclosure", lambda value: {"lower": to_log10(value.lo), "upper": to_log10(value.hi)}, _interval
    ),
}
Log = Annotated[
    float, plain_form(NUMBER, _is_spelled, to_log10, from_log10, "decades")
]  # a natural logarithm in memory
Log10 = Annotated[
    float, plain_form(NUMBER, _is_spelled, spell_number, unspell_number, "decades")
]  # decimal in memory too
Size = Annotated[
    float,
    plain_form(
        'a number from 0 on, or "inf"',
        lambda v: _is_spelled(v) and float(v) >= 0,
        spell_number,
        unspell_number,
        "number",
    ),
]
Finite = Annotated[float, plain_form("a number", _is_number)]
Share = Annotated[float, plain_form("a number from 0 to 1", lambda value: _is_number(value) and 0 <= value <= 1)]
Seconds = Annotated[float, plain_form("a number", _is_number, lambda value: round(value, 4), words="seconds")]
SIDES = FieldForm(  # of two readings
    "{a, b}", lambda pair: {"a": pair[0], "b": pair[1]}, lambda sides: (sides["a"], sides["b"])
)


class Ends(TypedDict):
    """The two ends that an enclosure has in a file."""

    lower: Annotated[Log, Told('its lower end; `"-inf"` where none is known')]
    upper: Annotated[Log, Told("its upper end")]
