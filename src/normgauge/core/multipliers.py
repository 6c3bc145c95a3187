"""The numbers an upper bound was proved with, kept so that it can be proved again without looking for them."""

from __future__ import annotations

import base64
import binascii
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from normgauge.core.errors import ReadingError
from normgauge.core.fields import Stored, Told

MOST_KEPT = 4096  # numbers of a reading: 44 kB in its file


@dataclass(frozen=True, slots=True)
class Multipliers(Stored):
    """What a bound needs beside the network. Any numbers prove a bound or none: others can only prove a larger one."""

    sample: Annotated[int, Told("its place in the batch; 0 in the scope `global`")]
    count: Annotated[int, Told("how many there are")]
    packed: Annotated[
        str,
        Told(
            "their natural logarithms as float64, little-endian, in base64: of Λ for `open units`, one an open unit "
            "or group; of γ and D for `loop`; of either for `everywhere`. "
            f"Empty where a reading has more than {MOST_KEPT:,}, which are not kept"
        ),
    ] = ""

    def logs(self) -> tuple[float, ...]:
        """The numbers.

        Raises:
            ReadingError: where they are not kept, or the text is not what was packed.
        """
        try:
            data = base64.b64decode(self.packed, validate=True)
            found = struct.unpack(f"<{self.count}d", data)
        except (binascii.Error, struct.error, ValueError):
            raise ReadingError(f"multipliers of sample {self.sample}: {self.count} numbers are not there") from None
        if not all(map(math.isfinite, found)):
            raise ReadingError(f"multipliers of sample {self.sample}: expected finite numbers")
        return found


def kept_multipliers(found: Mapping[int, Sequence[float]]) -> tuple[Multipliers, ...]:
    """Those of each sample, packed where they are few enough."""
    few = sum(map(len, found.values())) <= MOST_KEPT
    return tuple(
        Multipliers(sample, len(logs), base64.b64encode(struct.pack(f"<{len(logs)}d", *logs)).decode() if few else "")
        for sample, logs in found.items()
    )


def are_kept(stored: Sequence[Multipliers]) -> bool:
    """Whether a bound can be proved again with them."""
    return bool(stored) and all(item.packed or not item.count for item in stored)
