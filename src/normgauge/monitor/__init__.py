"""Watch a network while it trains.

opening.py      what is refused, and the header
monitor.py      Monitor: the face, the schedule, the run file
sheet.py        one reading as a typed record: what a line holds, what each number is worth, how it comes from a device
instruments.py  what is measured at a reading: layers.py finds the weights, enclosure.py and convolution.py keep proved
                norms, listener.py hears the passes, optimizer.py reads rates, momenta and weight decay
watch.py        which numbers deserve an alarm: signs/ has one kind a file, thresholds.py the numbers, seen.py what is
                shown
schedule.py     how much time may be taken, and when
distributed.py  several processes as one
growth.py       parameters that come later
"""

from __future__ import annotations

from normgauge.monitor.alarms import Alarm
from normgauge.monitor.monitor import Monitor

__all__ = ["Alarm", "Monitor"]
