"""What-if questions: the same network with a normalizer taken out, exchanged or put in, measured again."""

from normgauge.advice.whatif.question import WhatIf, what_if

__all__ = ["WhatIf", "what_if"]
