"""Watch a network while it trains.

monitor.py      Monitor: the face, the schedule, the run file
instruments.py  what is measured at a reading: layers.py finds the weights, enclosure.py and convolution.py keep proved
                norms, sigma.py listens to the normalizers, fetch.py brings numbers from a device without waiting
columns.py      what a line holds and what each number is worth
watch.py        which numbers deserve an alarm
budget.py       how much time may be taken
"""

from __future__ import annotations

from normgauge.monitor.alarms import Alarm
from normgauge.monitor.monitor import Monitor

__all__ = ["Alarm", "Monitor"]
