"""One record a layer, the constants of losses and weights, and the steps without a bound."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import normgauge as ng
from normgauge.core.bound import Scope
from normgauge.core.fields import declared_fields
from normgauge.core.reading import LayerRecord
from normgauge.core.spelled import LN10
from normgauge.instrument.measure import gauge
from normgauge.instrument.probe import search
from normgauge.instrument.records import layer_names, published_table, sum_logs, weight_frobenius
from normgauge.instrument.session import Options, Session, opened
from normgauge.render.verdict import verdict_line
from normgauge.theory.nets import layer_net, plain_net, samples
from tests.instrument.claimed_rules import Triple, claimed, rule_of

pytestmark = pytest.mark.usefixtures("brief_search")


def test_a_brief_search_is_one():
    """The fixture that all of these and others use shortens what it says."""
    kinked, smooth = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), nn.LayerNorm(4)
    for network in (kinked, smooth):
        assert search(network.double(), torch.randn(3, 4).double(), 3, math.inf, alone=True).steps == 16


@pytest.mark.parametrize("strict", [False, True])
def test_no_bound_found_is_neither_unknown_nor_a_proof(strict):
    rules = claimed(triple=rule_of(math.inf, no_bound="nobody found one"))
    reading = ng.gauge(
        nn.Sequential(Triple(), nn.Linear(4, 2)), torch.randn(3, 4), scope="global", rules=rules, strict=strict
    )
    assert reading.evidence is ng.Evidence.UNKNOWN and reading.log_upper == math.inf
    assert [(f.name, f.why) for f in reading.no_bound] == [("0", "nobody found one")]
    assert reading.unknown == () and reading.unbounded == ()
    assert "No finite bound was found everywhere; there may be one." in verdict_line(reading)
    assert reading.to_json()["no_bound"] == [{"name": "0", "why": "nobody found one"}]


def test_behind_a_part_without_a_bound_nothing_is_proved_infinite():
    class Square(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            h = x[0] if isinstance(x, tuple) else x
            return h * h

    rules = claimed(triple=rule_of(math.inf, no_bound="nobody found one"))
    behind = ng.gauge(nn.Sequential(Triple(), Square()), torch.randn(3, 4), scope="global", rules=rules)
    before = ng.gauge(nn.Sequential(Square(), Triple()), torch.randn(3, 4), scope="global", rules=rules)
    assert behind.unbounded == () and [f.name for f in behind.no_bound] == ["0"]
    assert [f.name for f in before.unbounded] == ["0.mul"] and before.evidence is ng.Evidence.UNKNOWN


def test_an_infinite_gain_without_a_word_is_not_called_proved():
    reading = ng.gauge(Triple(), torch.randn(3, 4), scope="global", rules=claimed(triple=rule_of(math.inf)))
    assert reading.evidence is ng.Evidence.UNKNOWN and len(reading.no_bound) == 1 and reading.unbounded == ()
    proved = ng.gauge(
        Triple(), torch.randn(3, 4), scope="global", rules=claimed(triple=rule_of(math.inf, unbounded="a proof"))
    )
    assert proved.evidence is ng.Evidence.PROVED and proved.no_bound == () and proved.unbounded[0].why == "a proof"


def test_weight_constants_bound_the_effect_of_weights() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 3)).double()
    x = torch.randn(1, 6, dtype=torch.float64)
    reading = gauge(model, x, scope="point", search=False)
    for name in ("0", "3"):
        weight = model.get_submodule(name).weight
        rows = [torch.autograd.grad(o, weight, retain_graph=True)[0].flatten() for o in model(x)[0]]
        truth = float(torch.linalg.matrix_norm(torch.stack(rows), 2))
        bound = reading.layer(name).log_weight_lipschitz
        assert bound is not None and truth <= math.exp(bound) * (1 + 1e-9)
    assert reading.layer("3").log_weight_lipschitz == pytest.approx(math.log(truth), abs=1e-6)


@pytest.mark.parametrize("normalized", [False, True])
def test_weight_slopes_are_bounded_at_the_weights_there_are(normalized: bool) -> None:
    """Of all weights of a layer without normalizers behind it; behind a LayerNorm, of these alone."""
    net, x = layer_net() if normalized else plain_net(), samples()
    weight = net.layers[1].linear.weight

    def bound() -> float:
        return gauge(net, x, scope="point", search=False).layer("layers.1.linear").log_weight_lipschitz or math.nan

    before = bound()
    with torch.no_grad():
        weight.mul_(0.01)
    assert (bound() > before + math.log(1.5)) is normalized and (bound() == pytest.approx(before)) is not normalized
    sentence = next(f.told.sentence for f in declared_fields(LayerRecord) if f.key == "log10_weight_lipschitz")
    assert "at the weights it has" in sentence and "no constant over all weights" in sentence


def test_loss_constants() -> None:
    reading = gauge(nn.Linear(4, 9).double(), torch.randn(2, 4, dtype=torch.float64), scope="global", search=False)
    base = reading.log_upper / LN10
    assert reading.loss["cross_entropy"] == pytest.approx(base + math.log10(math.sqrt(2)))
    assert reading.loss["l1_sum"] == pytest.approx(base + math.log10(3))


def test_the_published_products_are_those_of_the_formulas() -> None:
    """P_w is the product of spectral norms; Theorem 9 multiplies the normalizers' own constants."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3)).double().eval()
    norm = model[1]
    norm.running_var.uniform_(0.2, 2.0), norm.weight.data.uniform_(0.5, 2.0)
    with opened(model, torch.randn(2, 4, dtype=torch.float64)) as session:
        table = products_of(session, "global")
    maps = [layer.weight.detach() for layer in (model[0], model[3])]
    spectral = math.prod(float(torch.linalg.matrix_norm(w, 2)) for w in maps)
    sigma = (norm.running_var + norm.eps).sqrt()
    assert table["log10_P_w"] == pytest.approx(math.log10(spectral), abs=1e-6)
    assert table["log10_P_w_frobenius"] == pytest.approx(sum(math.log10(float(w.norm())) for w in maps), abs=1e-6)
    steepest = float((norm.weight.detach().abs() / sigma).max())
    assert table["log10_theorem9"] == pytest.approx(math.log10(spectral * steepest), abs=1e-6)
    assert table["log10_prod_inv_sigma"]["min"] == pytest.approx(-math.log10(float(sigma.min())), abs=1e-6)


def published(model: nn.Module, samples: int, scope: str, shape: tuple[int, ...] = (8,)) -> dict[str, Any]:
    x = torch.randn(samples, *shape, dtype=torch.float64)
    with opened(model, x, Options(mode="train" if model.training else "eval")) as session:
        return products_of(session, scope)


def products_of(session: Session, scope: str) -> dict[str, Any]:
    parts = session.composed(Scope.parse(scope))
    return published_table(parts, session.everywhere(parts))


@pytest.mark.parametrize("samples", [1, 2, 8])
def test_groups_are_those_of_one_input_whatever_the_batch(samples: int) -> None:
    """Lemma 3 over all inputs: a LayerNorm is one group, 1/√ε; GroupNorm(2, ·) two, 2/√ε."""
    layers = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 8), nn.LayerNorm(8)).double().eval()
    found = published(layers, samples, "global")
    once = found["log10_P_w"] + 5.0  # ε = 1e-5, twice its root
    assert found["log10_lemma3_sum"] == pytest.approx(once, abs=1e-6)
    assert found["log10_corollary11"] == pytest.approx(once, abs=1e-6)
    groups = nn.Sequential(nn.Linear(8, 8), nn.GroupNorm(2, 8)).double().eval()
    found = published(groups, samples, "global")
    assert found["log10_lemma3_sum"] == pytest.approx(found["log10_P_w"] + math.log10(2) + 2.5, abs=1e-6)
    rows = published(nn.LayerNorm(8).double().eval(), samples, "point", (5, 8))  # five tokens are no five groups
    assert rows["log10_lemma3_sum"] == rows["log10_corollary11"]


def test_groups_are_summed_over_one_input_not_over_the_worst_sample_of_each() -> None:
    """One sample is narrow in its first group, the other in its second: no input has both."""
    narrow, wide = [0.0, 0.2], [0.0, 20.0]
    x = torch.tensor([narrow + wide, wide + narrow, wide + wide], dtype=torch.float64)
    with opened(nn.GroupNorm(2, 4).double().eval(), x) as session:
        table = products_of(session, "point")
    assert table["log10_lemma3_sum"] == pytest.approx(math.log10(1 / math.hypot(0.1, 1e-5**0.5) + 1 / 10), abs=1e-6)
    maps = nn.InstanceNorm2d(2).double().eval()  # a channel is a group
    with opened(maps, x.reshape(3, 2, 2, 1)) as session:
        assert products_of(session, "point")["log10_lemma3_sum"] == pytest.approx(table["log10_lemma3_sum"])


@pytest.mark.parametrize("scope", ["point", "ball:0.001", "global"])
def test_what_is_printed_over_all_inputs_does_not_follow_the_scope(scope: str) -> None:
    """Lemma 3 has C/√ε and Theorem 9 the constants of whole normalizers, wherever the samples are."""
    torch.manual_seed(0)
    norm = nn.GroupNorm(4, 8)
    norm.weight.data.uniform_(0.5, 2.0)
    found = published(nn.Sequential(nn.Linear(8, 8), norm).double().eval(), 5, scope)
    floor = found["log10_P_w"] + 2.5
    assert found["log10_lemma3_published"] == pytest.approx(floor + math.log10(4), abs=1e-6)
    steepest = floor + math.log10(float(norm.weight.detach().abs().max()))
    assert found["log10_theorem9_published"] == pytest.approx(steepest, abs=1e-6)
    for own, printed in (("lemma3_sum", "lemma3_published"), ("theorem9", "theorem9_published")):
        apart = found[f"log10_{printed}"] - found[f"log10_{own}"]
        assert abs(apart) < 1e-6 if scope == "global" else apart > 0.1, own
    one = published(nn.LayerNorm(8).double().eval(), 2, scope)
    assert one["log10_lemma3_published"] == one["log10_corollary11_published"]  # one group


def test_a_published_product_stands_only_where_its_statement_is_about_the_normalizers() -> None:
    alone = {
        "log10_prod_l2": nn.BatchNorm1d(8),
        "log10_corollary10_1": nn.BatchNorm1d(8),
        "log10_corollary10_2": nn.BatchNorm1d(8),
        "log10_corollary11": nn.LayerNorm(8),
        "log10_corollary11_published": nn.LayerNorm(8),
    }
    for key, norm in alone.items():
        for other in (nn.BatchNorm1d(8), nn.LayerNorm(8), nn.GroupNorm(2, 8), nn.RMSNorm(8), nn.Identity()):
            table = published(nn.Sequential(nn.Linear(8, 8), other).double().eval(), 2, "global")
            assert (table[key] is not None) == (type(other) is type(norm)), (key, other)
            both = published(nn.Sequential(norm, nn.Linear(8, 8), other).double().eval(), 2, "global")
            assert (both[key] is None) == (type(other) not in (type(norm), nn.Identity)), (key, other)
    grouped = {
        type(norm): published(nn.Sequential(norm).double().eval(), 2, "global")["log10_lemma3_sum"]
        for norm in (nn.BatchNorm1d(8), nn.LayerNorm(8), nn.GroupNorm(2, 8), nn.RMSNorm(8))
    }
    assert [kind for kind, value in grouped.items() if value is not None] == [nn.LayerNorm, nn.GroupNorm]
    batch = published(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)).double().train(), 6, "global")
    assert [key for key, value in batch.items() if value is None] == [
        *alone,
        "log10_lemma3_sum",
        "log10_lemma3_published",
    ]
    lengths = nn.Sequential(nn.Conv2d(3, 4, 3), nn.LocalResponseNorm(2)).double().eval()
    assert published(lengths, 1, "point", (3, 6, 6))["log10_theorem9"] is None  # its gain is no 1/σ
    assert published(lengths, 1, "point", (3, 6, 6))["log10_theorem9_published"] is None


def test_corollary_10_1_is_the_product_with_its_weights() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)).double().eval()
    model[1].running_var.uniform_(0.2, 2.0), model[1].weight.data.uniform_(0.5, 2.0)
    table = published(model, 2, "point")
    scale = model[1].weight.detach() / (model[1].running_var + model[1].eps).sqrt()
    spectral = float(torch.linalg.matrix_norm(model[0].weight.detach(), 2))
    assert table["log10_corollary10_1"] == pytest.approx(math.log10(spectral * float(scale.norm())), abs=1e-6)


def test_lemma_2_of_a_pair_is_the_printed_one() -> None:
    """Of two entries the slope is ε/σ³; the printed bound stays 1/σ."""
    model, x = nn.LayerNorm(2).double().eval(), torch.tensor([[1.0, 3.0]]).double()
    with opened(model, x) as session:
        table = products_of(session, "point")
    assert table["log10_corollary11"] == pytest.approx(-math.log10(math.sqrt(1 + 1e-5)), abs=1e-9)
    assert table["log10_corollary11_published"] == pytest.approx(2.5)


def test_a_module_that_runs_again_gets_a_number() -> None:
    layer = nn.Linear(3, 3)
    with opened(nn.Sequential(layer, nn.Tanh(), layer), torch.randn(2, 3)) as session:
        names = layer_names(session.composed(Scope.parse("global")))
    assert list(names.values()) == ["0", "1", "0#2"]


def test_infinity_absorbs_in_a_sum_of_logs() -> None:
    assert sum_logs([1.0, 2.5]) == 3.5 and sum_logs([]) == 0.0
    assert sum_logs([-math.inf, 2.0]) == -math.inf and sum_logs([-math.inf, math.inf]) == math.inf


def test_the_length_of_a_weight() -> None:
    assert weight_frobenius(torch.tensor([[3.0, 4.0]])) == pytest.approx(math.log(5))
    assert weight_frobenius(torch.zeros(2, 2)) == -math.inf and weight_frobenius(None) is None


def test_losses_of_one_softmax_are_not_told_of_a_sequence():
    """The losses of several tokens add up, and their constant is larger."""
    tokens, single = (gauge(nn.Linear(4, 3), torch.randn(2, *shape)) for shape in ((5, 4), (4,)))
    assert "cross_entropy" not in tokens.loss and "softmax_l1" not in tokens.loss and "l1_sum" in tokens.loss
    assert "cross_entropy" in single.loss
