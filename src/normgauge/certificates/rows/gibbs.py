"""PAC-Bayes rows: this network with Gaussian noise on its weights, never this network itself."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial

import torch
from torch import Tensor
from torch.nn import functional as F

from normgauge.certificates.bounds import dziugaite2017, lyu2022, perez_ortiz2021
from normgauge.certificates.bounds.kl import kl_inverse
from normgauge.certificates.bounds.parts import Parts
from normgauge.certificates.case import Case
from normgauge.certificates.conditions import CODE, FREE, INITIAL, TRAIN, joined_conditions
from normgauge.certificates.facts.sample import DataSample
from normgauge.certificates.gibbs.descent import DescentPlan, optimize_posterior, to_fixed_prior, to_shared_prior
from normgauge.certificates.gibbs.posterior import Gaussian, divergence, grid_divergence, proportional
from normgauge.certificates.gibbs.risk import APART, Effort, drawn_error
from normgauge.certificates.gibbs.space import TROUBLE, WeightSpace, weight_space
from normgauge.certificates.scores.function import scale_free_sharpness
from normgauge.certificates.surrogate import Half, eval_copy, train_half
from normgauge.core.certificate import Consumed, Row, RowKind, promised_row

NOISY = "this network with Gaussian noise on its weights"
FITTED = "a network drawn from a Gaussian fitted around this one"
LEARNT = "a network of this architecture, drawn from a Gaussian around one trained on half of D"
PILOT = 20  # draws that choose the noise; the bound uses new ones
SHARES = (3.0, 2.0, 1.4, 1.0, 0.7, 0.5, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01)  # noise over the size of a tensor
AS_GOOD = 0.005  # of priors whose errors differ by less, the widest: moving away from it is cheaper
PRIOR_SHARES = (0.3, 0.2, 0.1, 0.05, 0.02, 0.01)  # widths of the learnt prior, paid for by a union
LARGEST = 100.0  # variance of a prior, in units of 1/fan-in: the top of the grid
SPLIT = 0.1  # the share of δ that pays for the draws
HOPELESS = (
    "at least this, even with no error on D{}: the divergence alone is worth a blind guess, so no network was drawn; "
    "more samples, fewer weights or initial= would help"
)
State = Mapping[str, Tensor]
Found = tuple[Parts, WeightSpace, str]  # the bound, what it is about, why it was not worked out to the end

MAURER = Row(
    key="gibbs.maurer",
    name="PAC-Bayes with scale-free noise (Maurer)",
    family="PAC-Bayes",
    kind=RowKind.NOT_APPLICABLE,
    consumed=(Consumed.TRAIN_LABELS,),
    additive=True,
    about=NOISY,
    reason="it was not tried",
    source="Maurer 2004, Theorem 5; McAllester 1999",
    formula="E_Q R ≤ kl⁻¹(kl⁻¹(MC, ln(2/δ′)/V), (KL(Q‖P) + ln|grid| + ln(2√m/δ″))/m),  Q = N(w, ρ²·mean w²)",
)
DZIUGAITE = dataclasses.replace(
    MAURER,
    key="gibbs.dziugaite",
    name="PAC-Bayes, optimised (Dziugaite–Roy)",
    consumed=(Consumed.TRAIN_LABELS, Consumed.TRAINING),
    about=FITTED,
    source="Dziugaite & Roy 2017, Theorem 2.1 and section 3",
    formula="E_Q R ≤ kl⁻¹(kl⁻¹(MC, ln(2/δ′)/V), (KL + 2 ln j + ln(π²m/(6δ″)))/(m−1)),  P = N(w₀, 100·e^(−j/100)/fan)",
)
LEARNT_PRIOR = dataclasses.replace(
    DZIUGAITE,
    key="gibbs.data_dependent_prior",
    name="PAC-Bayes with a prior learnt on half of D",
    about=LEARNT,
    source="Pérez-Ortiz, Rivasplata, Shawe-Taylor & Szepesvári 2021, section 6",
    formula="E_Q R ≤ kl⁻¹(kl⁻¹(MC, ln(2/δ′)/V), (KL + ln|grid| + ln(2√n/δ″))/n),  n = m/2 samples the prior never saw",
)

LLA = Row(
    key="score.lla",
    name="Spherical sharpness (Lyu–Li–Arora)",
    family="score",
    kind=RowKind.NOT_APPLICABLE,
    consumed=(Consumed.TRAIN_LABELS,),
    additive=True,
    limit=math.inf,
    quantity="loss",
    about=NOISY,
    reason="it was not tried",
    source="Lyu, Li & Arora 2022, as quoted by Than 2025 (arXiv 2511.00958)",
    formula="F(D) + τμ²/2 + ln(m)/(μ√m) at the best μ,  τ = λ_max(DHD) on scale-free weights; no constants",
)


@dataclass(frozen=True, slots=True)
class Work:
    """What every row of this family is computed with."""

    case: Case
    initial: State | None
    prepared: Callable[[], Half] | None
    draws: int | None
    own: Callable[[], WeightSpace]  # the space of the trained network, made once

    @property
    def delta(self) -> float:
        """The share of δ for the PAC-Bayes step."""
        return self.case.delta * (1 - SPLIT)

    @property
    def delta_draws(self) -> float:
        """δ′, the share of δ for the draws."""
        return self.case.delta * SPLIT

    def centre(self, like: WeightSpace) -> State:
        """Where the prior stands: the initial weights in the same scales, or 0."""
        if self.initial is None:
            return {name: tensor.new_zeros(tensor.shape) for name, tensor in like.mean.items()}
        begun = eval_copy(self.case.model)
        begun.load_state_dict(dict(self.initial))
        return weight_space(begun, self.case.few(), data_free=self.case.data_free).mean

    def effort(self, where: WeightSpace) -> Effort:
        """How many draws and samples to use; it depends on the cost of the network alone."""
        found = Effort.of(where, self.case.train.take([0]))
        return found if self.draws is None else dataclasses.replace(found, draws=self.draws)

    def error(self, where: WeightSpace, posterior: Gaussian, sample: DataSample, effort: Effort, what: str) -> float:
        """The Gibbs error, estimated with new draws."""
        seed, tell = self.case.seed + 2 * APART, partial(self.case.progress, what)
        return drawn_error(where, posterior, sample, effort.draws, batch=effort.batch, seed=seed, tell=tell)

    def pilot(self, where: WeightSpace, posterior: Gaussian, sample: DataSample, effort: Effort) -> float:
        """The Gibbs error, estimated with a few draws, to choose between posteriors."""
        return drawn_error(where, posterior, sample, PILOT, batch=effort.batch, seed=self.case.seed)

    def hopeless(self, exponent: float) -> Parts | None:
        """The bound without any error on D if even that is no better than guessing; None if draws can help."""
        least = kl_inverse(0.0, exponent)
        return Parts(least, (("divergence", least),)) if least >= 1 - 1 / self.case.classes else None


def gibbs_rows(
    case: Case,
    *,
    initial: State | None = None,
    prepared: Callable[[], Half] | None = None,
    draws: int | None = None,
) -> Iterator[Row]:
    """The PAC-Bayes rows, and the sharpness score that speaks about a noisy network too.

    Args:
        case: the network and its data.
        initial: the state dict training began with, fixed without D: the priors stand there instead of at 0.
        prepared: gives a network trained on a random half of D, as `train_half` does, where other rows use it too.
        draws: of the weights, for each row; by default as many as the size of the network allows.

    Yields:
        ``gibbs.maurer``, ``gibbs.dziugaite``, ``gibbs.data_dependent_prior``, ``score.lla``.
    """
    work = Work(
        case, initial, prepared, draws, cache(lambda: weight_space(case.model, case.few(), data_free=case.data_free))
    )
    yield _tried(MAURER, _maurer, work)
    for template, make in ((DZIUGAITE, _dziugaite), (LEARNT_PRIOR, _learnt_prior)):
        yield _tried(template, make, work) if case.epochs else dataclasses.replace(template, reason=case.untrained)
    yield _lla(case)


def _tried(template: Row, make: Callable[[Work], Found], work: Work) -> Row:
    """The row, or the reason why it could not be computed: one row that fails must not stop the others."""
    try:
        parts, where, stopped = make(work)
    except TROUBLE as error:
        return dataclasses.replace(template, reason=f"it could not be computed: {error}")
    begun = INITIAL if work.initial is not None and template is not LEARNT_PRIOR else ""
    row = dataclasses.replace(
        template,
        value=parts.value,
        confidence=1 - work.case.delta,
        condition=joined_conditions(TRAIN, CODE, begun, FREE if work.case.data_free else ""),
        terms=parts.terms,
        about=template.about + "".join(f" ({note})" for note in where.notes),
    )
    return dataclasses.replace(row, kind=RowKind.VACUOUS, reason=stopped) if stopped else promised_row(row, reason="")


def _maurer(work: Work) -> Found:
    """Noise in proportion to each tensor; its size is tried out, the width of the prior is on a grid that is paid."""
    case, where = work.case, work.own()
    centre, effort = work.centre(where), work.effort(where)
    costs = {share: grid_divergence(proportional(where.mean, share), centre) for share in SHARES}
    least = work.hopeless(perez_ortiz2021.maurer_exponent(min(costs.values()), case.m, work.delta))
    if least is not None:
        return least, where, HOPELESS.format("")

    def bound(share: float, seen: float) -> Parts:
        return perez_ortiz2021.pac_bayes_kl_bound(
            seen, effort.draws, costs[share], case.m, work.delta, work.delta_draws
        )

    best = (math.inf, math.inf)
    for share in SHARES:
        if bound(share, 0.0).value < best[0]:  # otherwise no draw could make it the best
            seen = work.pilot(where, proportional(where.mean, share), case.train, effort)
            best = min(best, (bound(share, seen).value, share))
    seen = work.error(where, proportional(where.mean, best[1]), case.train, effort, "PAC-Bayes")
    return bound(best[1], seen), where, ""


def _dziugaite(work: Work) -> Found:
    """Mean and noise by descent; the prior N(w₀, λu²) has one λ, and u = fan-in^(−1/2) is known without data."""
    case, where = work.case, work.own()
    centre, units = work.centre(where), {name: _unit(tensor) for name, tensor in where.mean.items()}
    effort = work.effort(where)
    extra = math.log(2 * math.sqrt(case.m) / work.delta)
    plan = DescentPlan(case.epochs, case.m, extra, batch=effort.step, seed=case.seed)
    tell, start = partial(case.progress, "PAC-Bayes, optimised"), proportional(where.mean, 0.5)
    toward = partial(optimize_posterior, where, start, to_shared_prior(centre, units), case.train, plan)

    def cheapest(posterior: Gaussian) -> tuple[float, float, int]:
        best = dziugaite2017.grid_step(_best_variance(posterior, centre, units), largest=LARGEST)
        steps = (max(1, best - 1), best, best + 1)
        paid = [(_divergence(posterior, centre, units, step), step) for step in steps]
        return min((dziugaite2017.grid_exponent(kl, step, case.m, work.delta), kl, step) for kl, step in paid)

    def least(posterior: Gaussian) -> Parts | None:
        return work.hopeless(cheapest(posterior)[0])

    near = least(toward(blind=True)) if least(start) is not None else None
    if near is not None:
        return near, where, HOPELESS.format(" and a descent on the divergence alone")
    exponents, ahead = [cheapest(start)[0]], []

    def enough(posterior: Gaussian, left: int) -> bool:
        """Whether it stays hopeless if every pass left brings as much as this one; steps get shorter."""
        exponents.append(cheapest(posterior)[0])
        found = work.hopeless(exponents[-1] - left * max(0.0, exponents[-2] - exponents[-1]))
        ahead.extend([] if found is None else [found])
        return found is not None

    posterior = toward(enough=enough, tell=tell)
    if ahead:
        return ahead[0], where, HOPELESS.format(" and each pass of the descent as good as the last one made")
    far = least(posterior)
    if far is not None:
        return far, where, HOPELESS.format("")
    seen = work.error(where, posterior, case.train, effort, "PAC-Bayes, draws")
    _, kl, step = cheapest(posterior)
    return dziugaite2017.grid_prior_bound(seen, effort.draws, kl, step, case.m, work.delta, work.delta_draws), where, ""


def _divergence(posterior: Gaussian, centre: State, units: Mapping[str, float], step: int) -> float:
    """KL to the prior of this step of the grid."""
    spread = math.sqrt(dziugaite2017.prior_variance(step, largest=LARGEST))
    width = {name: tensor.new_tensor(spread * units[name], dtype=torch.float64) for name, tensor in centre.items()}
    return divergence(posterior, Gaussian(centre, width))


def _best_variance(posterior: Gaussian, centre: State, units: Mapping[str, float]) -> float:
    """λ at the minimum of KL: the mean of (σ² + (w − w₀)²)/u²."""
    total = count = 0.0
    for name, mean in posterior.mean.items():
        away = (mean.double() - centre[name].double()).square() + posterior.width[name].double().square()
        total, count = total + float(away.sum()) / units[name] ** 2, count + mean.numel()
    return total / count


def _unit(tensor: Tensor) -> float:
    return float(tensor[0].numel()) ** -0.5 if tensor.ndim > 1 else 1.0


def _learnt_prior(work: Work) -> Found:
    """Prior around a network trained on half of D, posterior trained on all of D, bound on the other half."""
    case = work.case
    other = train_half(case) if work.prepared is None else work.prepared()
    where = weight_space(other.model, case.few(), data_free=case.data_free)
    n, choice, effort = len(other.unseen), math.log(len(PRIOR_SHARES)), work.effort(where)

    priors = [proportional(where.mean, share) for share in PRIOR_SHARES]
    tried = [work.pilot(where, prior, other.unseen, effort) for prior in priors]
    prior = next(p for p, seen in zip(priors, tried, strict=True) if seen <= min(tried) + AS_GOOD)
    extra = choice + math.log(2 * math.sqrt(n) / work.delta)
    plan = DescentPlan(case.epochs, n, extra, 0.005, 1e-2, effort.step, case.seed)
    tell = partial(case.progress, "PAC-Bayes, posterior")
    moved = optimize_posterior(where, prior, to_fixed_prior(prior), case.train, plan, tell=tell)

    def certified(posterior: Gaussian, seen: float) -> Parts:
        cost = divergence(posterior, prior) + choice
        return perez_ortiz2021.pac_bayes_kl_bound(seen, effort.draws, cost, n, work.delta, work.delta_draws)

    def promising(posterior: Gaussian) -> float:
        return certified(posterior, work.pilot(where, posterior, other.unseen, effort)).value

    posterior = min((prior, moved), key=promising)  # a posterior may be chosen freely: the draws below are new
    return certified(posterior, work.error(where, posterior, other.unseen, effort, "PAC-Bayes, draws")), where, ""


def _lla(case: Case) -> Row:
    """The sharpness row; it is always a score and never a bound."""
    try:
        tau = max(scale_free_sharpness(case.model, case.train, case.seed), 1e-12)
    except TROUBLE as error:
        return dataclasses.replace(LLA, reason=str(error))
    loss = float(F.cross_entropy(case.logits.double(), case.train.truth))
    parts = lyu2022.smoothed_bound(loss, tau, lyu2022.best_noise(tau, case.m), case.m)
    return dataclasses.replace(LLA, kind=RowKind.SCORE, value=parts.value, terms=parts.terms, reason="")
