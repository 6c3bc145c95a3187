"""A second network of the same architecture that has seen only a part of D."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from normgauge.certificates.case import Case
from normgauge.certificates.facts.reads import refuse_unpaid
from normgauge.certificates.facts.sample import DataSample, device_of
from normgauge.certificates.scores.norms import multiplications
from normgauge.core.errors import InputError
from normgauge.instrument.trace.copied import copied
from normgauge.instrument.trace.untouched import unwrap
from normgauge.lab.training import train
from normgauge.lab.zoo import Split
from normgauge.render.numbers import shortened_names

STEPS = 100  # an epoch has about this many, with between 8 and 128 samples a step
PASSES = 5  # over the half of D, by default
MOST_WORK, SPEED = 4e11, 2e10  # multiplications that need not be asked for, and about how many a core does a second
LONG = 0.7  # share of the epochs at the larger learning rate; the smaller one settles the weights


@dataclass(frozen=True, slots=True)
class Half:
    """A network trained on a random half of D.

    Attributes:
        model: the network, in eval mode.
        unseen: the other half of D, of which it knows nothing.
    """

    model: nn.Module
    unseen: DataSample


def affordable_case(case: Case) -> Case:
    """The case with the default number of training passes, or none and a reason if they would take long."""
    forward = multiplications(case.model, case.train.take([0]).to(device_of(case.model)))
    work = 3 * forward * PASSES * case.m / 2  # a backward pass costs two forward passes
    if work <= MOST_WORK:
        return dataclasses.replace(case, epochs=PASSES)
    words = f"it needs extra training, about {work / SPEED / 60:.1f} minutes here; allow it with epochs={PASSES}"
    return dataclasses.replace(case, epochs=0, untrained=words)


def train_half(case: Case) -> Half:
    """Train the architecture from new weights on a random half of D.

    Which half is drawn from the seed alone, so the other half is an iid sample for the network that comes out.

    Raises:
        InputError: when no training is allowed, D has fewer than 4 samples, or the architecture cannot start anew.
    """
    if case.epochs < 1:
        raise InputError(case.untrained)
    if case.m < 4:
        raise InputError(f"D has {case.m} samples; half of it must hold two or more")
    order = torch.randperm(case.m, generator=torch.Generator().manual_seed(case.seed))
    seen, unseen = order[: case.m // 2], order[case.m // 2 :]
    model = reinitialized_copy(case.model, case.seed)
    refuse_unpaid(model, case.few(), [tensor for _, tensor in _learnt(model)], case.data_free)
    learn(model, Split(case.train.take(seen), case.train.truth[seen]), case)
    return Half(model.eval(), case.train.part(unseen))


def learn(model: nn.Module, data: Split, case: Case) -> None:
    """Train in place for the epochs the case allows."""
    size, first = min(128, max(8, len(data) // STEPS)), math.ceil(case.epochs * LONG)
    for rate, start, epochs in ((1e-3, 0, first), (1e-4, first, case.epochs - first)):

        def tell(step: int, steps: int, start: int = start, epochs: int = epochs) -> None:
            case.progress("training on a half of D", (start + epochs * step / steps) / case.epochs)

        if epochs:
            train(model, data, epochs=epochs, batch_size=size, lr=rate, seed=case.seed + start, progress=tell)


def reinitialized_copy(model: nn.Module, seed: int) -> nn.Module:
    """A copy with new weights, drawn by the modules' own ``reset_parameters``.

    Every weight and every stored statistic is overwritten with NaN first: what a module does not draw anew would carry
    what it learnt from D, and shows.

    Raises:
        InputError: for a model that cannot be copied or started anew; the message names what stayed.
    """
    twin = eval_copy(model)
    learnt = dict(_learnt(twin))
    with torch.no_grad():
        for tensor in learnt.values():
            tensor.fill_(math.nan)
    places = {tensor.device for tensor in learnt.values() if tensor.device.type == "cuda"}
    with torch.random.fork_rng(devices=list(places)):
        torch.manual_seed(seed)
        for module in twin.modules():
            reset = getattr(module, "reset_parameters", None) or getattr(module, "_reset_parameters", None)
            if callable(reset):
                reset()
    kept = [name for name, tensor in _learnt(twin) if bool(tensor.isnan().any())]
    if kept:
        raise InputError(
            f"{type(model).__name__} cannot start anew: reset_parameters leaves {shortened_names(kept, 3)} as trained"
        )
    return twin.requires_grad_(True)


def eval_copy(model: nn.Module) -> nn.Module:
    """A deep copy in eval mode.

    Raises:
        InputError: for a network that cannot be copied.
    """
    return copied(unwrap(model)).eval()


def _learnt(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Parameters and floating buffers that are saved with the model: what a module is asked to draw anew."""
    named = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    saved = model.state_dict(keep_vars=True)
    for name, tensor in named.items():
        if name in saved and tensor.is_floating_point():
            yield name, tensor
