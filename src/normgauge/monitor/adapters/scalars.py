"""What a tracker is given of a record: names and floats."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

# The columns logged when none are named; every one is a curve for each layer
COLUMNS = ("norm_lower", "sigma_min", "scale_free_gradient")

LINE = ("loss", "loss_mean", "loss_max", "lr")


class Scalars:
    """Turns the step records of a monitor into named numbers.

    >>> scalars = Scalars(("norm_upper",))
    >>> scalars.learn({"kind": "header", "layers": [{"name": "stem"}, {"name": "head"}]})
    >>> columns = {"norm_upper": [3.0, None]}
    >>> scalars.of({"kind": "step", "step": 1, "loss": 0.5, "totals": {"log10_P_w": 2.0}, "columns": columns})
    {'loss': 0.5, 'log10_P_w': 2.0, 'norm_upper/stem': 3.0}

    Args:
        columns: which columns to log, beside the totals.
        prefix: put before every name.
    """

    def __init__(self, columns: Sequence[str] = COLUMNS, prefix: str = "") -> None:
        self._columns, self._prefix = tuple(columns), prefix
        self._layers: list[str] = []

    def learn(self, record: Mapping[str, Any]) -> None:
        """Take the layers' names from a header, or those that came later."""
        names = [layer["name"] for layer in record.get("layers", ())]
        if record["kind"] == "header":
            self._layers = names
        elif record["kind"] == "layers":
            self._layers += names

    def of(self, record: Mapping[str, Any]) -> dict[str, float]:
        """The numbers of a step; what was not measured is left out."""
        return {self._prefix + name: float(value) for name, value in self._pairs(record) if value is not None}

    def _pairs(self, record: Mapping[str, Any]) -> Iterator[tuple[str, float | None]]:
        yield from ((name, record.get(name)) for name in LINE)
        yield from record["totals"].items()
        for column in self._columns:
            cells = record["columns"].get(column, ())
            yield from ((f"{column}/{layer}", cell) for layer, cell in zip(self._layers, cells, strict=False))


def alarm_text(record: Mapping[str, Any]) -> str:
    """An alarm in one line."""
    where = f" in {record['layer']}" if record["layer"] else ""
    return f"step {record['step']}: {record['alarm']}{where}: {record['sentence']}"
