"""The curves of a page of runs: which quantities, with which words, and how each is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from normgauge.render.runs_data import Labelled, both_ends, losses, span, thin, total_evidence
from normgauge.render.runs_plots import COLOURS, Curve, Plot, figure

Curves = Callable[[int, Labelled], list[Curve]]
SIGMA, WEIGHTS = "log10_prod_inv_sigma", "log10_P_w"
FREE = "free of the scale in front of normalizers"


def curves(items: Sequence[Labelled]) -> str:
    """Loss, products and gradient over the steps, all runs in each figure."""
    reach = span(items)
    marks = [(w["step"], i) for i, item in enumerate(items) for w in item.run.alarms if isinstance(w.get("step"), int)]
    several = len(items) > 1
    alarm = [("tick alarm", "alarm")] if marks else []

    def plot(caption: str, unit: str, curve: Curves, more: Sequence[tuple[str, str]] = ()) -> str:
        lines = [c for i, item in enumerate(items) for c in curve(i, item) if c.pairs]
        drawn = sorted({c.colour for c in lines}) if several else []
        key = [(f"line curve c{i % COLOURS}", items[i].label) for i in drawn]
        return figure(Plot(caption, unit, lines, reach, marks, [*key, *more, *alarm], not unit.startswith("log10")))

    first = items[0].run
    folded = f"Product of folded gains ({total_evidence(first, 'log10_folded')}); {FREE}"
    caption, kinds = _named(items)
    return (
        '<div class="plots">'
        + plot("Loss (observed)", "loss", lambda i, item: [Curve(f"{item.label} loss", i, thin(losses(item.run)))])
        + plot(folded, "log10", lambda i, item: [_simple(i, item, "log10_folded")])
        + plot(caption, "log10", _products, kinds)
        + plot(
            f"Gradient norm ({total_evidence(first, 'gradient')})",
            "‖∇‖",
            lambda i, item: [_simple(i, item, "gradient")],
        )
        + "</div>"
    )


def _named(items: Sequence[Labelled]) -> tuple[str, list[tuple[str, str]]]:
    """Caption and legend of the products: only those that any run has."""
    kinds = (
        ("P_w", f"{WEIGHTS}_lower", "line curve plain", "P_w, lower end; band up to the upper end"),
        ("Π1/σ", f"{SIGMA}_rms", "line curve plain dashed", "Π1/σ (rms); band from largest to smallest σ"),
    )
    run = items[0].run
    found = [kind for kind in kinds if any(item.run.total(kind[1]) for item in items)]
    told = " and ".join(f"{name} ({total_evidence(run, total)})" for name, total, _, _ in found)
    return f"{told}: depend{'s' if len(found) == 1 else ''} on the gauge", [kind[2:] for kind in found]


def _simple(index: int, item: Labelled, name: str) -> Curve:
    return Curve(f"{item.label} {name}", index, thin(item.run.total(name)))


def _products(index: int, item: Labelled) -> list[Curve]:
    """The line of P_w is its lower end: the upper one shows the slack between two proofs, not the training."""
    total = item.run.total
    lower = total(f"{WEIGHTS}_lower")
    ends = both_ends(total(f"{SIGMA}_max"), total(f"{SIGMA}_min"))
    return [
        Curve(f"{item.label} P_w", index, thin(lower), both_ends(lower, total(WEIGHTS))),
        Curve(f"{item.label} Π1/σ", index, thin(total(f"{SIGMA}_rms")), ends, "dashed"),
    ]
