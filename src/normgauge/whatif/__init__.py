"""What-if questions: the same network with a normalizer taken out, exchanged or put in, measured again."""

from normgauge.whatif.measured import Measured

__all__ = ["Measured"]
