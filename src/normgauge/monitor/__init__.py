"""Watch a network while it trains.

monitor.py      Monitor: the face, the schedule, the run file, which journal.py writes
sheet.py        one reading as a typed record: what a line holds, what each number is worth, how it comes from a device
instruments.py  what is measured at a reading: layers.py finds the weights, vectors.py measures many at once,
                listener.py hears the passes, optimizer.py reads rates, momenta and weight decay
enclosure.py    proved norms of matrices and convolutions while they change
watch.py        which numbers deserve an alarm: signs/ has one subject a file, thresholds.py the numbers
schedule.py     how much time may be taken, and when
distributed.py  several processes as one
watching/       run files followed while they grow, and the live page; without torch
adapters/       callbacks and sinks for other people's tools
"""
