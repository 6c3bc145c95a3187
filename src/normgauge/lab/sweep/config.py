"""A sweep's config: TOML in, checked values out; what is wrong is told with its place before anything runs."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from normgauge.core.errors import InputError
from normgauge.lab.sweep.keys import DRAWS, KEYS, OPTIONS, Check, ValueDraw, nearest_name, varied_check

TABLES = ("data", "network", "training", "measure", "grid", "random", "run")
APART = ("name", "seeds", "random.", "run.")  # keys that are no setting of a trial


@dataclass(frozen=True, slots=True)
class Config:
    """What a config asks for, every value checked.

    Attributes:
        path: the file.
        name: of the sweep.
        shared: settings of every trial by dotted key, defaults included.
        grid: values of each key of the grid.
        draws: how each key of the random part is drawn.
        count: how many points are drawn; 1 without a random part.
        draw_seed: of the draws.
        seeds: of the trials.
        run: the values of [run] by name.
    """

    path: Path
    name: str
    shared: Mapping[str, Any]
    grid: Mapping[str, tuple[Any, ...]]
    draws: Mapping[str, ValueDraw]
    count: int
    draw_seed: int
    seeds: tuple[int, ...]
    run: Mapping[str, Any]

    @property
    def varied(self) -> tuple[str, ...]:
        """The keys that differ between points."""
        return (*self.grid, *self.draws)

    @property
    def folder(self) -> Path:
        """Where the config lies: relative paths of code and data begin there."""
        return self.path.resolve().parent

    @property
    def out(self) -> Path:
        """The folder for trials and results."""
        return Path(self.run["out"] or Path("sweeps") / self.name)


def read_config(path: Path) -> Config:
    """Read and check a config.

    Args:
        path: a TOML file.

    Returns:
        The config.

    Raises:
        InputError: when it cannot be read or something in it is wrong.
    """
    try:
        content = path.read_text(encoding="utf-8")
        data = tomllib.loads(content)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; give a TOML file") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: expected a TOML file in UTF-8, got other bytes") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: not TOML: {error}") from None
    return _Reader(path, content).read(data)


class _Reader:
    """Reads one file; it knows the text, so that a mistake can be told with its line."""

    def __init__(self, path: Path, content: str) -> None:
        self.path, self.content = path, content

    def read(self, data: dict[str, Any]) -> Config:
        grid_data, random_data = (self._table(data, name) for name in ("grid", "random"))
        flat = dict(_flat({key: value for key, value in data.items() if key not in ("grid", "random")}))
        flat |= {f"random.{key}": random_data.pop(key) for key in ("count", "seed") if key in random_data}
        values = {key: self._value(key, value) for key, value in flat.items()}
        values = {key: known.default for key, known in KEYS.items()} | values
        grid = {key: self._grid(key, given) for key, given in _flat(grid_data)}
        draws = dict(self._draw(key, given) for key, given in _flat(random_data))
        self._check_parts(values, grid, draws)
        name = values["name"] or self.path.stem
        if not re.fullmatch(r"[\w.-]+", name) or name in (".", ".."):
            self._fail("name", f"expected letters, digits and - _ . only (it names a folder), got {name!r}")
        return Config(
            self.path,
            name,
            {key: value for key, value in values.items() if not key.startswith(APART)},
            grid,
            draws,
            values["random.count"] or 1,
            values["random.seed"],
            tuple(values["seeds"]),
            {key.removeprefix("run."): value for key, value in values.items() if key.startswith("run.")},
        )

    def _table(self, data: dict[str, Any], name: str) -> dict[str, Any]:
        table = data.get(name, {})
        if not isinstance(table, dict):
            self._fail(name, f"expected a table, got {table!r}; write [{name}] above its keys")
        return dict(table)

    def _value(self, key: str, value: Any) -> Any:
        if key.startswith(OPTIONS):
            return value
        if key not in KEYS:
            self._unknown(key)
        return self._checked(key, KEYS[key].check, value)

    def _unknown(self, key: str) -> NoReturn:
        table, _, name = key.rpartition(".")
        if table and table.split(".")[0] not in TABLES:
            self._fail(key, f"no table [{table}]; {nearest_name(table, TABLES)}")
        if key in TABLES:
            self._fail(key, f"expected a table, got a value; write [{key}] above its keys")
        home = [known for known in KEYS if known.rpartition(".")[0] == table]
        elsewhere = [known for known in KEYS if known.rpartition(".")[2] == name]
        close = f"nearest: {elsewhere[0]}" if elsewhere else nearest_name(key, home + ["grid", "random"] * (not table))
        self._fail(key, f"unknown key {name!r} {f'in [{table}]' if table else 'at the top'}; {close}")

    def _checked(self, key: str, check: Check, value: Any) -> Any:
        try:
            return check(value)
        except ValueError as error:
            self._fail(key, f"{key}: expected {error}, got {value!r}")

    def _varied(self, part: str, key: str) -> Check:
        check = varied_check(key)
        if check is None:
            known = [name for name in KEYS if varied_check(name) is not None] + [OPTIONS + "NAME"]
            self._fail(f"{part}.{key}", f"[{part}] cannot vary {key!r}; {nearest_name(key, known)}")
        return check

    def _grid(self, key: str, given: Any) -> tuple[Any, ...]:
        check, place = self._varied("grid", key), f"grid.{key}"
        if not isinstance(given, list) or not given:
            self._fail(place, f"grid {key}: expected a list of values, not empty, got {given!r}")
        values = tuple(self._checked(place, check, value) for value in given)
        if len({repr(value) for value in values}) != len(values):
            self._fail(place, f"grid {key}: expected each value once, got {given!r}")
        return values

    def _draw(self, dotted: str, given: Any) -> tuple[str, ValueDraw]:
        key, _, kind = dotted.rpartition(".")
        place = f"random.{dotted}"
        if kind not in DRAWS:
            if varied_check(dotted) is None and varied_check(key) is None:
                self._varied("random", dotted)
            self._fail(place, f"random {dotted}: expected {{ KIND = [...] }} with one of {', '.join(DRAWS)}")
        check = self._varied("random", key)
        draw = self._checked(place, lambda value: ValueDraw.of(kind, value), given)
        values = [self._checked(place, check, value) for value in draw.ends]
        return key, ValueDraw(kind, tuple(values)) if kind == "choice" else draw

    def _check_parts(self, values: Mapping[str, Any], grid: Mapping[str, Any], draws: Mapping[str, ValueDraw]) -> None:
        both = sorted(set(grid) & set(draws))
        if both:
            self._fail(f"random.{both[0]}", f"{both[0]} stands in [grid] and in [random]; leave one")
        if draws and values["random.count"] is None:
            self._fail("random", "[random] needs count: how many points to draw")
        if values["random.count"] is not None and not draws:
            self._fail("random", '[random] draws nothing; give it keys such as "training.lr" = { log_uniform = [...] }')
        if values["network.build"] is None and "network.build" not in (*grid, *draws):
            self._fail("network", "[network] needs build: a network of the zoo, or file.py:function")

    def _fail(self, key: str, message: str) -> NoReturn:
        line = line_of(self.content, key)
        raise InputError(f"{self.path}{f', line {line}' if line else ''}: {message}")


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested tables by dotted key."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def line_of(content: str, dotted: str) -> int | None:
    """The line in which a key, the table that holds it or the table itself is written; None where it is not."""
    table, header = "", None
    for count, line in enumerate(content.splitlines(), start=1):
        found = re.match(r"\s*\[([^\[\]]+)\]\s*(#.*)?$", line)
        if found:
            table = found[1].replace('"', "").replace(" ", "") + "."
            header = count if table == f"{dotted}." else header
        found = re.match(r"\s*([\w.\-\"' ]+?)\s*=", line)
        if found:
            key = table + re.sub(r"[\"' ]", "", found[1])
            if dotted == key or dotted.startswith(f"{key}."):
                return count
    return header
