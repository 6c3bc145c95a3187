"""One sample of a traced network: what a run of it costs, a seed of its own, its trace alone, its sweep over a ball."""

from __future__ import annotations

import torch

from normgauge.core.bound import Scope
from normgauge.instrument.compose import Composition
from normgauge.instrument.local.journey import swept_ball
from normgauge.instrument.local.pieces import NotCarried
from normgauge.instrument.local.sweep import MOST_OPEN
from normgauge.instrument.local.swept import Swept
from normgauge.instrument.probe.linearize import SampleMap
from normgauge.instrument.session import Session
from normgauge.instrument.spectral.random_start import weight_seed
from normgauge.instrument.trace.again import tensors_alike
from normgauge.instrument.trace.step import Trace

BENT = ("activation.", "norm_layer.", "pooling.max", "recognise.")
DIGESTED = 2**16  # entries of each weight that a seed is made of
FAILURES = (RuntimeError, MemoryError)  # an eigenvalue that does not converge, memory that is full: no better bound


def one_run(session: Session) -> float:
    """Seconds of counted work of one run of the network on all samples."""
    return max(network_of(session).work.seconds, 1e-6)


def network_of(session: Session) -> SampleMap:
    """The network as a map of samples, its work counted."""

    def made() -> SampleMap:
        axis = session.composed(Scope.parse("point")).flows[session.trace.end.index].axis
        return SampleMap(session.function(), session.trace.measured, 1 if session.together else session.samples, axis)

    return session.once("sample map", made)


def seed_of(session: Session) -> int:
    """A seed that follows from the weights: what has a chance holds for weights not chosen against it."""

    def made() -> int:
        seed = weight_seed(session.trace.sources[0].tensor)
        for tensor in session.model.state_dict().values():
            if tensor.layout == torch.strided and tensor.device.type != "meta":
                flat = tensor.detach().reshape(-1)[:DIGESTED]
                few = (torch.view_as_real(flat) if flat.is_complex() else flat).to(torch.float64)  # however it is held
                seed = (seed * 1_000_003 ^ weight_seed(few)) % 2**55
        return seed

    return session.once("seed", made)


def open_entries(session: Session) -> int:
    """How many numbers of one sample pass through nonlinear steps."""
    rules = session.composed(Scope.parse("point")).rules
    bent = [
        step.outputs[0].tensor.numel()
        for step in session.trace.steps
        if (rule := rules[step.index]) is not None and rule.id.startswith(BENT)
    ]
    return sum(bent) // session.samples


def swept_sample(
    session: Session, parts: Composition, sample: int, radius: float, most: int = MOST_OPEN
) -> Swept | None:
    """One sample's network over a ball; None where it is not followed."""
    one = session.once(("alone", sample), lambda: alone(session, sample))
    if one is None:
        return None
    try:
        with torch.no_grad():
            return swept_ball(one, parts, sample, radius, session.native, seed_of(session) + sample, most)
    except (NotCarried, *FAILURES):
        return None


def alone(session: Session, sample: int) -> Trace | None:
    """The trace of one sample, with the steps and the output it has in its batch; None where it has others."""
    if session.together or session.samples == 1:
        return session.trace
    whole_input = session.call.measured if session.trace.embeddings else session.trace.sources[0].tensor
    x = whole_input[sample : sample + 1]
    try:
        one = session.retrace(x)
    except Exception:  # a model that needs the whole batch, and says so in its own way
        return None
    same = len(one.steps) == len(session.trace.steps) and all(
        a.target == b.target and a.outputs[0].tensor.numel() * session.samples == b.outputs[0].tensor.numel()
        for a, b in zip(one.steps, session.trace.steps, strict=True)
    )
    if not same or one.output is None:
        return None
    axis = session.composed(Scope.parse("point")).flows[session.trace.end.index].axis
    whole = session.trace.end.tensor
    share = whole.shape[axis] // session.samples
    return one if tensors_alike(one.end.tensor, whole.narrow(axis, sample * share, share)) else None
