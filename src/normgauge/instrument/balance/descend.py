"""Descent on the channel weights: first on a smooth stand-in, then on the bound itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from normgauge.core.rounding import TINY
from normgauge.instrument.balance.objective import Objective

SMOOTH_STEPS = 100
SHARP_STEPS = 40
FEWEST_STEPS = 30  # with fewer the vectors lag behind the weights, and the descent ends above its start
PATIENT_STEPS = 120  # for networks so small that it costs nothing
SMALL, LARGE = 3e6, 5e8  # multiplications of one pass over the linear maps, one sample
WORTH, SPAN = 0.01 * math.log(10), 10  # what so many steps must gain on a large network for more to be taken
FIRST_STEP, LAST_STEP = 0.1, 0.003
FLAT = 1e-8  # a gradient with no larger entry: the descent has arrived
SETTLED = 1e-10  # of the value: what a step must gain for another one to be worth it
CURVED = 1e-12  # of the squared change of gradient: curvature below it is rounding and would spoil the model
DECREASE = 1e-4  # of what the slope promises: the usual share of the rule of Armijo

Gradient = Callable[[Tensor], tuple[float, Tensor]]


def descend_weights(objective: Objective, start: Tensor) -> Tensor:
    """Channel weights that make the bound small.

    First the composed bound is minimised with Frobenius norms in place of spectral ones: smooth and convex, so where it
    ends does not depend on the gauge the model came in. From there a subgradient descent follows the bound itself.
    Whatever weights it finds, the bound is proved for them afterwards.
    """
    if objective.weighting.free == 0:
        return start
    small = objective.weighting.work() < SMALL
    worth = 0.0 if small else WORTH
    smooth = lbfgs(partial(objective, frobenius=True), start, SMOOTH_STEPS, worth)
    steps = PATIENT_STEPS if small else SHARP_STEPS if objective.weighting.work() < LARGE else FEWEST_STEPS
    return adam(partial(objective, frobenius=False), smooth, steps, worth)


def is_worth_proving(objective: Objective, theta: Tensor, known: Tensor) -> bool:
    """Whether weights promise to lower a known bound by more than their proof costs; always, on a small network."""
    if objective.weighting.work() < SMALL:
        return True
    return objective(theta, frobenius=False)[0] < float(known.mean()) - WORTH / 2


def lbfgs(function: Gradient, start: Tensor, steps: int, worth: float = 0.0, memory: int = 20) -> Tensor:
    """Limited-memory BFGS with backtracking (Nocedal & Wright, Numerical Optimization, algorithm 7.5).

    torch.optim has one, but importing it loads torch's compiler, which costs more than the descent.
    """
    point, (value, gradient) = start, function(start)
    pairs: list[tuple[Tensor, Tensor]] = []
    values = [value]
    for _ in range(steps):
        if float(gradient.abs().max()) < FLAT:
            break
        direction = -_two_loop(gradient, pairs)
        slope = float(gradient @ direction)
        length = 1.0 if pairs else min(1.0, 1.0 / float(gradient.norm()))
        for _ in range(20):
            trial = point + length * direction
            trial_value, trial_gradient = function(trial)
            if trial_value <= value + DECREASE * length * slope:
                break
            length /= 2
        else:
            break
        move, turn = trial - point, trial_gradient - gradient
        if float(move @ turn) > CURVED * float(turn @ turn):
            pairs = [*pairs[-memory + 1 :], (move, turn)]
        if value - trial_value < SETTLED * max(1.0, abs(value)):
            return trial
        point, value, gradient = trial, trial_value, trial_gradient
        values.append(value)
        if len(values) > SPAN and values[-1 - SPAN] - value < worth:
            break
    return point


def _two_loop(gradient: Tensor, pairs: list[tuple[Tensor, Tensor]]) -> Tensor:
    """The inverse Hessian's action from the last moves and changes of gradient."""
    rest, factors = gradient, []
    for move, turn in reversed(pairs):
        factor = (move @ rest) / (move @ turn)
        factors.append(factor)
        rest = rest - factor * turn
    if pairs:
        move, turn = pairs[-1]
        rest = rest * (move @ turn) / (turn @ turn)
    for (move, turn), factor in zip(pairs, reversed(factors), strict=True):
        rest = rest + (factor - (turn @ rest) / (move @ turn)) * move
    return rest


def adam(function: Gradient, start: Tensor, steps: int, worth: float = 0.0) -> Tensor:
    """Adam (Kingma & Ba 2015) with a shrinking step; the best point of the second half is kept.

    The usual tiny ε is replaced by the mean gradient size: weights that carry little of any singular vector should
    move little, or their noise drowns the descent when there are tens of thousands of them.
    """
    point, best, best_value = start, start, float("inf")
    mean, square = torch.zeros_like(start), torch.zeros_like(start)
    values: list[float] = []
    for step in range(steps):
        value, gradient = function(point)
        values.append(value)
        if step >= steps // 2 and value < best_value:  # earlier values lag: the singular vectors are still settling
            best, best_value = point, value
        if step == steps // 2 and values[0] - min(values) < worth:
            return start  # half of the way brought nothing; a descent that brings something settles at its end only
        mean = 0.7 * mean + 0.3 * gradient
        square = 0.95 * square + 0.05 * gradient.square()
        rate = FIRST_STEP * (LAST_STEP / FIRST_STEP) ** (step / steps)
        size = (square / (1 - 0.95 ** (step + 1))).sqrt()
        point = point - rate * mean / (1 - 0.7 ** (step + 1)) / (size + size.mean() + TINY)
    return best
