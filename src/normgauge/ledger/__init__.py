"""Every claim of the theory, with a verdict and a check that can fail.

claim: Claim and the words checks are written in; draw: fresh instances.
One file a part of a paper, each with a table of its own; they are merged here.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence

from normgauge.core.claim import Ledger
from normgauge.errors import InputError
from normgauge.ledger import (
    akbar_advice,
    akbar_appendix,
    akbar_conditioning,
    akbar_convergence,
    akbar_curvature,
    akbar_definitions,
    akbar_depth,
    akbar_discussion,
    akbar_dynamics,
    akbar_experiments,
    akbar_generalization,
    akbar_implicit,
    akbar_invariance,
    akbar_length,
    akbar_literature,
    akbar_methods,
    akbar_metric,
    akbar_stability,
    akbar_weightnorm,
    extensions,
    extensions_activations,
    extensions_attention,
    extensions_cells,
    extensions_conv,
    extensions_gauge,
    extensions_losses,
    extensions_shapes,
    extensions_transformer,
    slides,
    slides_learning,
    slides_rates,
    summary,
    than_chains,
    than_cost,
    than_experiments,
    than_generalization,
    than_gradients,
    than_groupnorm,
    than_layernorm,
    than_local,
    than_losses,
    than_networks,
    than_normalized,
    than_normalizers,
    than_stacks,
    than_training,
    than_weights,
)
from normgauge.ledger.claim import Claim, Family

FAMILIES: tuple[Family, ...] = (
    than_normalizers.claims,
    than_layernorm.claims,
    than_groupnorm.claims,
    than_local.claims,
    than_networks.claims,
    than_stacks.claims,
    than_chains.claims,
    than_weights.claims,
    than_losses.claims,
    than_gradients.claims,
    than_training.claims,
    than_cost.claims,
    than_generalization.claims,
    than_normalized.claims,
    than_experiments.claims,
    slides.claims,
    slides_learning.claims,
    slides_rates.claims,
    summary.claims,
    extensions.claims,
    extensions_gauge.claims,
    extensions_conv.claims,
    extensions_attention.claims,
    extensions_transformer.claims,
    extensions_activations.claims,
    extensions_shapes.claims,
    extensions_losses.claims,
    extensions_cells.claims,
    akbar_definitions.claims,
    akbar_invariance.claims,
    akbar_weightnorm.claims,
    akbar_metric.claims,
    akbar_dynamics.claims,
    akbar_length.claims,
    akbar_stability.claims,
    akbar_curvature.claims,
    akbar_conditioning.claims,
    akbar_convergence.claims,
    akbar_implicit.claims,
    akbar_generalization.claims,
    akbar_experiments.claims,
    akbar_appendix.claims,
    akbar_methods.claims,
    akbar_literature.claims,
    akbar_depth.claims,
    akbar_advice.claims,
    akbar_discussion.claims,
)

CLAIMS: dict[str, Claim] = {claim.id: claim for family in FAMILIES for claim in family.claims}


def find(names: Sequence[str]) -> list[Claim]:
    """The claims called by ``names``: an id (``T.L1``) or the start of several (``T``, ``A.P4``); all where none is.

    Raises:
        InputError: for a name that is neither, with the nearest ids.
    """
    chosen: dict[str, Claim] = {}
    for name in names or ("",):
        hits = {k: c for k, c in CLAIMS.items() if k.lower() == name.lower()}
        hits = hits or {k: c for k, c in CLAIMS.items() if not name or f"{k}.".lower().startswith(f"{name}.".lower())}
        hits = hits or {k: c for k, c in CLAIMS.items() if k.lower().startswith(name.lower())}
        if not hits:
            near = difflib.get_close_matches(name.upper(), {k.upper(): k for k in CLAIMS}, n=5, cutoff=0.3)
            nearest = ", ".join(k for k in CLAIMS if k.upper() in near)
            raise InputError(f"claim: expected an id such as T.L1, got {name!r}; nearest: {nearest or 'none'}")
        chosen |= hits
    return list(chosen.values())


def check(claims: Iterable[Claim], seed: int = 0, tick: Callable[[Claim], None] | None = None) -> Ledger:
    """Run the checks of ``claims`` on instances drawn from ``seed``.

    Args:
        claims: which ones; `find` finds them.
        seed: another seed, other instances.
        tick: called before each claim, for a progress bar.

    Returns:
        What was found.
    """
    outcomes = []
    for claim in claims:
        if tick:
            tick(claim)
        outcomes.append(claim.run(seed))
    return Ledger(tuple(outcomes))
