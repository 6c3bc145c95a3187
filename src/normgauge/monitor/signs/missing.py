"""A layer without a normalizer among sisters that have one: read from the wiring, not from sizes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from normgauge.monitor.alarms import Alarm
from normgauge.monitor.seen import Place, Seen
from normgauge.monitor.thresholds import WIRING_READINGS

Gap = tuple[str, str, int]  # an existing layer beside the gap, what is missing, how many sisters have it


class MissingNormalizer:
    """One block of a series, or one layer in a row of normalized ones, that has no normalizer."""

    def __init__(self, places: Sequence[Place]) -> None:
        self._places = list(places)
        self._gaps = list(_odd_blocks(self._places))
        self._readings = 0

    def look(self, seen: Seen) -> Iterator[Alarm]:
        """Say what is missing, once the wiring was seen."""
        self._readings += 1
        if seen.step < 2:
            return
        if not self._gaps and self._readings <= WIRING_READINGS:
            self._gaps = list(self._odd_layers(seen))
        for layer, missing, sisters in self._gaps:
            sentence = (
                f"{layer} has no normalizer where {sisters} sister blocks have one ({missing}); what it does to the "
                "scale of activations is passed on unchecked. Inferred from the wiring: if it is meant, ignore this; "
                "else add it."
            )
            yield Alarm(seen.step, "missing_normalizer", layer, sentence, 0.0, float(sisters))

    def _odd_layers(self, seen: Seen) -> Iterator[Gap]:
        """Exactly one layer without, normalized ones before and after it, all of one role."""
        for role in ("matrix", "conv"):
            rows = [i for i, place in enumerate(self._places) if place.role == role]
            paired = [i in seen.pairs for i in rows]
            if paired.count(True) < 2:
                continue
            first, last = paired.index(True), len(paired) - 1 - paired[::-1].index(True)
            inside = [i for i, has in zip(rows[first:last], paired[first:last], strict=True) if not has]
            if len(inside) == 1:
                yield self._places[inside[0]].name, "a normalizer straight behind it", paired.count(True)


def _odd_blocks(places: Sequence[Place]) -> Iterator[Gap]:
    """Series of numbered blocks in which all but one have a normalizer of the same name."""
    norms: dict[tuple[str, str], set[str]] = defaultdict(set)
    blocks: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    behind: dict[tuple[str, str], int] = {}  # how many layers of a sister come before the normalizer
    for place in places:
        parts = place.name.split(".")
        for k, part in enumerate(parts):
            if not part.isdigit():
                continue
            series, inside = ".".join(parts[:k]), ".".join(parts[k + 1 :])
            if place.role == "norm" and inside:
                norms[series, inside].add(part)
                behind[series, inside] = len(blocks[series][part])
            elif place.role in ("matrix", "conv"):
                blocks[series][part].append(place.name)
    for (series, inside), having in norms.items():
        lacking = [part for part, layers in blocks[series].items() if layers and part not in having]
        if len(having) >= 2 and len(lacking) == 1:
            name = ".".join(filter(None, (series, lacking[0], inside)))
            layers = blocks[series][lacking[0]]
            yield layers[min(behind[series, inside], len(layers) - 1)], name, len(having)
