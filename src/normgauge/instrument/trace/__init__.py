"""Run the model once and write down the steps that lead from the measured input to the output."""

from normgauge.instrument.trace.step import Step, Trace, Value
from normgauge.instrument.trace.tape import record_trace
from normgauge.instrument.trace.untouched import untouched, unwrap

__all__ = ["Step", "Trace", "Value", "record_trace", "untouched", "unwrap"]
