"""Run the model once and write down the steps that lead from the measured input to the output."""

from normgauge.trace.step import Step, Trace, Value
from normgauge.trace.tape import record
from normgauge.trace.untouched import untouched, unwrap

__all__ = ["Step", "Trace", "Value", "record", "untouched", "unwrap"]
