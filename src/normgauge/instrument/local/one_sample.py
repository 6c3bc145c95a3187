"""One sample of a traced network: what a run of it costs, a seed of its own, its trace alone, its sweep over a ball."""

from __future__ import annotations

import torch
from torch import Tensor

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
from normgauge.instrument.trace.inputs import padding_mask
from normgauge.instrument.trace.same_path import same_numbers
from normgauge.instrument.trace.step import Trace

BENT = ("activation.", "norm_layer.", "pooling.max", "recognise.")
DIGESTED = 2**16  # entries of each weight that a seed is made of
BESIDE = 1e-2  # of a sample's size, how far off it is asked again
WHY_NOT = "why the last sample was not followed"  # as a session keeps it
OTHER_ALONE = "alone a sample does not take the steps to the output that it takes in its batch"
MASKED = (
    " (an attention_mask hides padding in it, and a model may leave out one that hides nothing); samples of one "
    "length, or one by one without padding, need none"
)
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
    session: Session, parts: Composition, sample: int, radius: float, most: int = MOST_OPEN, tune: bool = True
) -> Swept | None:
    """One sample's network over a ball, its multipliers tuned on the way or not; None where it is not followed."""
    one = session.once(("alone", sample), lambda: alone(session, sample))
    if one is None:
        session.cache[WHY_NOT] = OTHER_ALONE + ("" if padding_mask(session.call) is None else MASKED)
        return None
    try:
        with torch.no_grad():
            return swept_ball(one, parts, sample, radius, session.native, seed_of(session) + sample, most, tune)
    except (NotCarried, *FAILURES) as failure:
        session.cache[WHY_NOT] = str(failure) if isinstance(failure, NotCarried) else "it ran out of memory or numbers"
        return None


def alone(session: Session, sample: int) -> Trace | None:
    """The trace of one sample, with the steps and the output it has in its batch; None where it has others.

    Inputs beside the measured one are held as they are, or cut to the sample's own row where that does not do; the cut
    is believed if the sample has the output of its batch beside its place too, in a random direction, where another
    Jacobian would show. Of tokens, which have nothing beside them, others are taken.
    """
    if session.together or session.samples == 1:
        return session.trace
    whole = session.call.measured if session.trace.embeddings else session.trace.sources[0].tensor
    one = _traced_alone(session, whole[sample : sample + 1], None)
    if one is not None and _is_same(session, one, session.trace, sample):
        return one
    one = _traced_alone(session, whole[sample : sample + 1], sample)
    if one is None or not _is_same(session, one, session.trace, sample):
        return None
    other, generator = whole.clone(), torch.Generator().manual_seed(seed_of(session) + sample)
    if whole.is_floating_point():
        size = float(whole[sample].square().mean().sqrt()) or 1.0
        noise = torch.randn(whole[sample].shape, generator=generator, dtype=torch.float64)
        other[sample] += (BESIDE * size * noise).to(whole)
    else:
        other[sample] = (
            whole[sample].flatten()[torch.randperm(whole[sample].numel(), generator=generator)].view_as(whole[sample])
        )
    try:
        moved = [session.recorded(other[sample : sample + 1], sample), session.recorded(other)]
    except Exception:
        return None
    return one if _is_same(session, moved[0], moved[1], sample) else None


def _traced_alone(session: Session, x: Tensor, only: int | None) -> Trace | None:
    try:
        return session.retrace(x, only)
    except Exception:  # a model that needs the whole batch, and says so in its own way
        return None


def _is_same(session: Session, one: Trace, batch: Trace, sample: int) -> bool:
    """Whether one sample alone takes the steps, and has the output, that it has in its batch."""
    alike = len(one.steps) == len(batch.steps) and all(
        a.target == b.target
        and a.outputs[0].tensor.numel() * session.samples == b.outputs[0].tensor.numel()
        and same_numbers(a, b)
        for a, b in zip(one.steps, batch.steps, strict=True)
    )
    if not alike or one.output is None:
        return False
    axis = session.composed(Scope.parse("point")).flows[session.trace.end.index].axis
    whole = batch.end.tensor
    share = whole.shape[axis] // session.samples
    return tensors_alike(one.end.tensor, whole.narrow(axis, sample * share, share))
