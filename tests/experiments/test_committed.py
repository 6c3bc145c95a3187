"""The committed results, figures, tables and sentences belong together."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from experiments import study
from experiments.than2025 import figures, results, table
from experiments.than2025.findings import FINDINGS
from experiments.than2025.plan import load as load_plan
from experiments.than2025.results import Result


@pytest.fixture(scope="module")
def found() -> dict[str, Result]:
    loaded = results.load()
    assert len(loaded) > 50  # what is said of all of them is said of some
    return loaded


def last(run: Result, key: str) -> float:
    return run.total(key)[-1][1]


def test_results_are_whole(found: dict[str, Result]) -> None:
    for name, run in found.items():
        assert run.spec.name == name
        assert run.data["environment"]["device"] == "NVIDIA H200"
        assert [e["epoch"] for e in run.epochs] == list(range(len(run.epochs)))
        assert run.data["finished"] == (len(run.epochs) == run.spec.epochs + 1)
        assert not run.diverged
        assert all("error" not in reading for reading in run.data["readings"].values())
    assert sum(path.stat().st_size for path in results.FOLDER.glob("*.json")) < len(found) * 2**16


def test_every_run_of_the_plan_is_there_with_the_settings_of_the_plan(found: dict[str, Result]) -> None:
    planned = {spec.name: spec for spec in load_plan()}
    assert set(found) == set(planned)
    for name, run in found.items():
        assert {**run.spec.to_json(), "order": 0} == {**planned[name].to_json(), "order": 0}
        assert run.data["finished"] and run.last["epoch"] == run.spec.epochs


def test_every_run_was_read_when_planned_and_at_its_end(found: dict[str, Result]) -> None:
    for run in found.values():
        taken = [epoch for epoch, _ in run.reading("point")]
        assert taken == list(run.spec.readings) and taken[-1] == run.spec.epochs
    for name in ("nets", "optimizers", "decay", "resnet18-seeds"):
        assert {run.last["epoch"] for run in found.values() if run.spec.group == name} == {100}


def test_norms_have_gaps_in_the_first_runs_alone(found: dict[str, Result]) -> None:
    """Those named in the README: they took their norms by power iteration."""
    curves = {name: run.total("log10_P_w") for name, run in found.items()}
    assert all(math.isfinite(y) for curve in curves.values() for _, y in curve)
    short = {name for name, curve in curves.items() if len(curve) < len(found[name].epochs)}
    efficient = {name for name, run in found.items() if run.spec.group == "efficientnet"}
    assert short == {"nets/resnet18-adam", "groups/groups64", "widths/width4", "widths/width1024"} | efficient
    assert [x for x, _ in curves["nets/resnet18-adam"]] == [*range(71), 100]


def test_a_number_of_one_seed_is_marked(found: dict[str, Result]) -> None:
    first, other = "nets/resnet18-adam", found["optimizers/resnet18-adam-none"]
    assert "| one seed | 100 | 74.9 | −62.40 |" in table.seeds({first: found[first]})
    both = table.seeds({first: found[first], f"{table.SEEDS[first]}1": other})
    assert "| 2 | 100 | 74.9 to 75.4 | −62.40 to 26.95 |" in both


def test_quoted_numbers_have_three_seeds(found: dict[str, Result]) -> None:
    text = table.README.read_text(encoding="utf-8")
    for first, others in table.SEEDS.items():
        runs = [run for name, run in found.items() if name == first or name.startswith(others)]
        assert sorted(run.spec.seed for run in runs) == [0, 1, 2]
        alike = [{**run.spec.to_json(), "name": "", "order": 0, "group": "", "seed": 0} for run in runs]
        for spec in alike:  # when and how a run is read does not change it
            del spec["readings"], spec["scopes"]
        assert alike[0] == alike[1] == alike[2]
    efficient = [run for name, run in found.items() if "efficientnet_b3-adam" in name and run.spec.decay == 1e-4]
    ends = [dict(run.published("log10_P_w")) for run in efficient if run.spec.optimizer == "adam"]
    assert [[round(end[epoch], 1) for end in ends] for epoch in (20, 30)] == [[3.0, 11.0, 12.7], [-90.0, -89.1, -59.9]]
    assert "10^−90, 10^−89 and\n  10^−60 after 30 epochs" in text and "10^3.0, 10^11.0 and 10^12.7 at epoch 20" in text


def test_the_rows_of_the_first_page(found: dict[str, Result]) -> None:
    """The table by optimizer in docs/why-not-multiply.md: smallest to largest over seeds."""
    text = Path(__file__).parents[2].joinpath("docs", "why-not-multiply.md").read_text(encoding="utf-8")
    labels = {("adam", 1e-4): "Adam, L2 1e-4 in the gradient", ("adam", 0.0): "Adam, no decay"}
    labels |= {("adamw", 1e-4): "AdamW 1e-4, decoupled"}
    for (optimizer, decay), label in labels.items():
        runs = [r for r in found.values() if r.spec.net == "resnet18" and r.spec.epochs == 100]
        runs = [r for r in runs if (r.spec.optimizer, r.spec.decay) == (optimizer, decay)]
        columns = [
            [100 * r.last["test"][1] for r in runs],
            [r.published("log10_P_w")[-1][1] for r in runs],
            [last(r, "log10_prod_inv_sigma_rms") for r in runs],
            [r.reading("point")[-1][1] for r in runs],
            [r.log_total("jacobian_max")[-1][1] for r in runs],
        ]
        cells = [" to ".join(dict.fromkeys(f"{f(c):.1f}" for f in (min, max))).replace("-", "−") for c in columns]
        assert f"| {label} | {len(runs)} | {cells[0]} % | {' | '.join(cells[1:])} |" in text


def test_proved_bounds_hold_over_the_slopes_found(found: dict[str, Result]) -> None:
    for run in found.values():
        for (_, upper), (_, lower) in zip(run.reading("point"), run.reading("point", "lower"), strict=True):
            assert lower <= upper + 1e-4


@pytest.mark.parametrize("name", [*figures.ALL])
def test_figures_are_fresh_and_small(found: dict[str, Result], name: str, tmp_path: Path) -> None:
    drawn = figures.draw(found, tmp_path, [name], FINDINGS)[name]
    assert drawn is not None
    kept = figures.FIGURES / f"{name}.svg"
    assert kept.read_text(encoding="utf-8") == drawn.read_text(encoding="utf-8"), (
        "python -m experiments.than2025.figures"
    )
    assert kept.stat().st_size < 100_000
    titles = [panel.title for panel in figures.ALL[name](found)] + [
        line.label for panel in figures.ALL[name](found) for line in panel.lines
    ]
    for word in ("P_w", "σ", "balanced", "Jacobian"):
        assert any(word in title for title in titles) or "products" in " ".join(titles), (name, word)
    made = figures.ALL[name](found)
    assert made and all(panel.lines for panel in made)


def test_no_figure_is_left_over() -> None:
    assert {path.stem for path in figures.FIGURES.glob("*")} == set(figures.ALL)


def test_the_tables_of_the_readme_are_fresh(found: dict[str, Result]) -> None:
    text = fresh = table.README.read_text(encoding="utf-8")
    for name, made in table.tables(found).items():
        assert made != "No results yet."
        fresh = study.between(fresh, name, made)
    assert fresh == text, "python -m experiments.than2025.table"


def test_the_readme_links_every_figure() -> None:
    text = table.README.read_text(encoding="utf-8")
    assert set(re.findall(r"\(figures/(\w+)\.svg\)", text)) == set(figures.ALL)


def test_findings_fit_above_their_figures() -> None:
    assert set(FINDINGS) == set(figures.ALL)
    assert all(40 < len(sentence) < 130 for sentence in FINDINGS.values())


def test_the_numbers_of_the_findings(found: dict[str, Result]) -> None:
    """Spans between the five optimizers of ResNet-18, as the first sentence of the README and a title say."""
    five = [r for r in found.values() if r.spec.net == "resnet18" and r.spec.epochs == 100 and r.spec.seed == 0]
    assert len(five) == 5

    def span(values: list[float]) -> float:
        return max(values) - min(values)

    weights = [dict(r.published("log10_P_w"))[100] for r in five]
    assert round(span(weights)) == 89 and round(max(weights)) == 27 and round(min(weights)) == -62
    assert round(span([last(r, "log10_prod_inv_sigma_rms") for r in five])) == 31
    assert round(span([r.reading("point")[-1][1] for r in five]), 1) == 1.8
    assert round(span([r.log_total("jacobian_max")[-1][1] for r in five]), 1) == 1.2
    tests = [r.last["test"][1] for r in five]
    assert round(min(tests), 2) == 0.71 and round(max(tests), 2) == 0.76
    below = {r.spec.name: r.last["totals"]["below_one"] for r in five}
    assert below["nets/resnet18-adam"] == 15 and below["optimizers/resnet18-adam-none"] == 1
    both, neither = found["norms/resnet18-batch"], found["affine/resnet18-none"]
    assert round(last(both, "log10_prod_inv_sigma_rms") - last(neither, "log10_prod_inv_sigma_rms"), 1) == 12.5
    assert abs(both.reading("point")[-1][1] - neither.reading("point")[-1][1]) < 0.13
    efficient = found["efficientnet/efficientnet_b3-adam"].published("log10_P_w")
    assert round(efficient[0][1] - efficient[-1][1]) == 153
    others = [found[f"efficientnet-seeds/efficientnet_b3-adam-seed{seed}"].total("log10_P_w") for seed in (1, 2)]
    assert [round(curve[0][1] - curve[-1][1]) for curve in others] == [152, 123]
    both_ways = [r for r in found.values() if r.spec.net == "resnet18" and r.spec.epochs == 100 and r.spec.decay == 0]
    assert [round(last(r, "log10_P_w")) for r in both_ways] == [27, 27, 27]
    assert [20 - r.last["totals"]["below_one"] for r in both_ways] == [19, 19, 19]


def test_more_normalizers_go_with_a_larger_gap_for_batchnorm_alone(found: dict[str, Result]) -> None:
    def slope(group: str, value: Callable[[Result], float]) -> tuple[float, float]:
        runs = [r for r in found.values() if r.spec.group == group and r.spec.normalizers]
        return table.correlation([(r.spec.normalizers, 100 * value(r)) for r in runs])[2:]

    def last_gap(run: Result) -> float:
        return run.gap()[-1][1]

    grown, error = slope("count", last_gap)
    assert grown > 5 * error
    known = (
        ("count", at_half, -0.01, 0.05),
        ("count-layer", at_half, 0.0, 0.03),
        ("count-layer", last_gap, 0.04, 0.06),
    )
    for group, value, *quoted in known:
        flat, error = slope(group, value)
        assert abs(flat) < error and [round(flat, 2), round(error, 2)] == quoted


def at_half(run: Result) -> float:
    return run.gap_at(table.LEVEL)


def test_starts_stay_in_the_products_and_leave_bound_and_slope(found: dict[str, Result]) -> None:
    names = ("norms/resnet20-batch", "init/he-gain0.5", "init/he-gain2", "init-default/default")
    runs = [found[f"resnet20-{name}"] for name in names]

    def span(values: list[float]) -> float:
        return round(max(values) - min(values), 1)

    assert span([r.reading("point")[0][1] for r in runs]) == 10.5
    assert span([r.reading("point")[-1][1] for r in runs]) == 0.1
    assert span([r.log_total("jacobian_max")[-1][1] for r in runs]) == 0.0
    assert span([last(r, "log10_P_w") for r in runs]) == 3.3
    assert span([last(r, "log10_prod_inv_sigma_rms") for r in runs]) == 3.8


def test_what_the_stem_moves_is_the_scale(found: dict[str, Result]) -> None:
    """The README's sentence on the two optimizers with the 3 x 3 stem, at epoch 30."""
    small = [found[f"stem/resnet18_cifar-{name}"] for name in ("adam", "adam-none")]
    keys = ("log10_P_w", "log10_prod_inv_sigma_rms", "log10_folded")
    apart = [round(last(small[1], key) - last(small[0], key), 1) for key in keys]
    assert apart == [7.9, -13.9, -0.1]
    bounds = [[run.reading("point", key)[-1][1] for run in small] for key in ("folded", "upper")]
    assert [round(b - a, 2) for a, b in bounds] == [-0.01, -0.06]
    assert [20 - run.last["totals"]["below_one"] for run in small] == [10, 19]


def test_networks_that_did_not_train_are_those_named(found: dict[str, Result]) -> None:
    dead = {name for name, run in found.items() if run.last["test"][1] < 0.15}
    assert dead == {"groups/groups64", "groups/groups256", "widths/width4", "widths/width1024"}
    for name in dead:
        assert all(abs(e["train"][0] - math.log(10)) < 0.03 for e in found[name].epochs[1:])
