"""The monitor in every kind of loop: it sees what happened, changes nothing, and never breaks the training."""

from __future__ import annotations

import copy
import gc
import io
import itertools
import logging
import math
import pickle
import weakref

import pytest
import torch
from torch import nn
from torch.nn.modules import module as torch_modules
from torch.nn.utils import parametrizations

import normgauge as ng
from normgauge.core import store
from normgauge.monitor import listener, replay
from normgauge.monitor.instruments import Instruments
from normgauge.monitor.schedule import DENSE_STEPS, GAP


def small(norm=nn.LayerNorm):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), norm(8), nn.ReLU(), nn.Linear(8, 2))


def data(seed=1, shape=(16, 4)):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def loop(model, monitor, steps=3, *, inputs=None, optimizer=None):
    """The plain loop of the documentation."""
    optimizer = optimizer or torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    for step in range(steps):
        optimizer.zero_grad()
        loss = model(data(step) if inputs is None else inputs).float().square().mean()
        loss.backward()
        optimizer.step()
        if monitor is not None:
            monitor.step(loss=loss, lr=0.1)
    return optimizer


def spectral(weight):
    return float(torch.linalg.matrix_norm(weight.detach(), 2))


def watched(model, folder, steps=3, **options):
    """A run of the plain loop, read back."""
    given = options.pop("inputs", None)
    with ng.Monitor(model, folder, every=1, **options) as monitor:
        loop(model, monitor, steps, inputs=given)
    return store.read(monitor.path)


def test_accumulation_sees_the_sigma_of_all_micro_batches_and_the_update_of_one_step(tmp_path):
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with ng.Monitor(model, tmp_path, every=1) as monitor:
        before, sigmas = model[0].weight.detach().clone(), []
        for scale in (1.0, 100.0):
            inputs = scale * data(3)
            sigmas.append(torch.sqrt(model[0](inputs).detach().var(1, correction=0) + model[1].eps))
            (model(inputs).square().mean() / 2).backward()
        optimizer.step()
        monitor.step()
        moved = float((model[0].weight.detach() - before).norm())
    run = store.read(tmp_path)
    assert run.series("sigma_min", "1") == [(1, pytest.approx(float(torch.cat(sigmas).min()), rel=1e-4))]
    assert run.series("sigma_max", "1") == [(1, pytest.approx(float(torch.cat(sigmas).max()), rel=1e-4))]
    assert run.series("update", "0") == [(1, pytest.approx(moved, rel=1e-4))]
    assert run.series("gradient", "0") == [(1, pytest.approx(float(model[0].weight.grad.norm()), rel=1e-4))]


def test_the_sigma_of_a_step_are_its_own(tmp_path):
    model = small()
    model[0].requires_grad_(False)
    with ng.Monitor(model, tmp_path, every=1) as monitor:
        for scale in (100.0, 1.0):
            loop(model, monitor, 1, inputs=scale * data(3))
    (_, first), (_, second) = store.read(tmp_path).series("sigma_max", "1")
    assert second < 5 < 50 < first


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "fp16"])
def test_gradients_of_mixed_precision_are_unscaled_and_a_skipped_step_moves_nothing(dtype, tmp_path):
    model = small()
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu", init_scale=1024.0)
    plain = torch.autograd.grad(model(data(0)).square().mean(), model[0].weight)[0].norm()
    with ng.Monitor(model, tmp_path, every=1) as monitor:
        for factor in (1.0, math.inf):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype):
                loss = model(data(0)).float().square().mean()
            scaler.scale(loss * factor).backward()
            scaler.step(optimizer)
            scaler.update()
            monitor.step(loss=loss)
    run = store.read(tmp_path)
    gradients, updates = run.series("gradient", "0"), run.series("update", "0")
    assert gradients[0][1] == pytest.approx(float(plain), rel=0.05)
    assert not math.isfinite(gradients[1][1]) and updates[0][1] > 0 and updates[1][1] == 0
    assert [math.isfinite(value) for _, value in run.series("norm_lower", "0")] == [True, True]


@pytest.mark.parametrize("in_place", [False, True], ids=["wrapped", "in place"])
@pytest.mark.parametrize("norm", [nn.BatchNorm1d, nn.LayerNorm], ids=["batch", "layer"])
def test_a_compiled_model_is_heard_by_a_few_samples_that_run_again(norm, in_place, tmp_path):
    model = small(norm)
    if in_place:
        model.compile(backend="eager")
    compiled = model if in_place else torch.compile(model, backend="eager")
    state, random = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    run = watched(compiled, tmp_path, steps=1, inputs=data())
    assert torch.equal(random, torch.get_rng_state())
    assert run.layers == ["0", "1", "3"] and run.header["model"]["name"] == "Sequential"
    assert [value > 0 for _, value in run.series("folded", "0")] == [True]
    if norm is nn.LayerNorm:
        assert not run.notes
        sigma = torch.sqrt(model[0](data()[: replay.SAMPLES]).detach().var(1, correction=0) + model[1].eps)
        assert run.series("sigma_min", "1")[0][1] == pytest.approx(float(sigma.min()), rel=1e-5)
    else:
        (note,) = run.notes
        assert "σ of 1 from running statistics" in note["sentence"] and "the model is compiled" in note["sentence"]
        rms = math.sqrt(float((model[1].running_var + model[1].eps).mean()))
        assert run.series("sigma_rms", "1")[-1][1] == pytest.approx(rms, rel=1e-5)
        assert int(model[1].num_batches_tracked) == int(state["1.num_batches_tracked"]) + 1
    kept = model.__dict__["_compiled_call_impl"] if in_place else compiled.__dict__["forward"]
    assert kept.__module__ != "normgauge.monitor.replay"


def test_awakening_the_hooks_compiles_nothing_anew(tmp_path):
    torch._dynamo.reset()
    compiled = torch.compile(small(nn.BatchNorm1d), backend="eager")
    with ng.Monitor(compiled, tmp_path, every=2) as monitor:
        loop(compiled, monitor, 2, inputs=data())
        count = torch._dynamo.utils.counters["stats"]["unique_graphs"]
        loop(compiled, monitor, 4, inputs=data())
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == count
    torch._dynamo.reset()


def test_channels_last_gives_the_same_numbers(tmp_path):
    runs = []
    for layout in (torch.contiguous_format, torch.channels_last):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8 * 36, 2))
        model = model.to(memory_format=layout)
        inputs = data(1, (4, 3, 6, 6)).to(memory_format=layout)
        runs.append(watched(model, tmp_path / str(layout), inputs=inputs))
    for column in ("norm_lower", "gradient", "radial", "update", "sigma_min"):
        for layer in ("0", "1"):
            plain, last = (dict(run.series(column, layer)) for run in runs)
            assert last == pytest.approx(plain, rel=1e-3, abs=1e-6), column


def test_a_frozen_weight_has_a_norm_but_no_gradient(tmp_path):
    model = small()
    model[0].requires_grad_(False)
    run = watched(model, tmp_path)
    assert run.series("gradient", "0") == [] and len(run.series("norm_lower", "0")) == 3
    assert [value for _, value in run.series("update", "0")] == [0.0] * 3
    assert len(run.series("gradient", "3")) == 3 and not run.notes


def test_parameters_that_come_later_are_watched(tmp_path):
    model = small()
    records = []
    with ng.Monitor(model, tmp_path, every=1, sinks=[records.append]) as monitor:
        loop(model, monitor, 2)
        model.append(nn.Linear(2, 5))
        model.append(nn.LayerNorm(5))
        loop(model, monitor, 1)
        proved = copy.deepcopy(model[4].weight)
        loop(model, monitor, 1)
    (late,) = (record for record in records if record["kind"] == "layers")
    assert late["step"] == 3 and [layer["name"] for layer in late["layers"]] == ["4", "5"]
    sizes = [len(record["columns"]["norm_upper"]) for record in records if record["kind"] == "step"]
    assert sizes == [3, 3, 5, 5]
    last = records[-2]["columns"]
    with ng.Monitor(model, tmp_path, every=1, resume=True) as monitor:
        loop(model, monitor, 1)
    run = store.read(tmp_path)
    assert run.layers == ["0", "1", "3", "4", "5"] and [line["step"] for line in run.steps] == [1, 2, 3, 4, 5]
    (upper,) = (
        record["columns"]["norm_upper"][3] for record in records if record.get("step") == 3 and "columns" in record
    )
    assert upper >= spectral(proved) > upper * 0.9 and last["proof_age"][3] == 1
    assert last["sigma_min"][4] > 0 and last["update"][3] > 0 and last["gradient"][3] > 0


def test_an_exchanged_module_of_the_same_shape_is_followed(tmp_path):
    model = small()
    with ng.Monitor(model, tmp_path, every=1) as monitor:
        loop(model, monitor, 2)
        model[3] = nn.Linear(8, 2)
        model[1] = nn.LayerNorm(8, eps=100.0)
        nn.init.constant_(model[3].weight, 3.0)
        loop(model, monitor, 2)
    run = store.read(tmp_path)
    lowers, sigmas = dict(run.series("norm_lower", "3")), dict(run.series("sigma_min", "1"))
    assert lowers[2] < 2 < 7 < lowers[3]
    assert sigmas[2] < 9 and 3 not in sigmas and sigmas[4] > 10  # the pass before it was noticed was not heard


@pytest.mark.parametrize(("every", "at"), [(1, 12), (5, 12), (10, 20)])
@pytest.mark.parametrize("whole", [True, False])
def test_no_step_leads_from_a_weight_to_the_one_it_was_exchanged_for(tmp_path, every, at, whole):
    model = small()
    optimizer, moved = torch.optim.SGD(model.parameters(), lr=0.01), {}
    with ng.Monitor(model, tmp_path, every=every) as monitor:
        for step in range(1, 31):
            if step == at:
                if whole:
                    model[3] = nn.Linear(8, 2)
                else:
                    model[3].weight = nn.Parameter(torch.ones(2, 8))
                optimizer.add_param_group({"params": [model[3].weight]})
            before = model[3].weight.detach().clone()
            optimizer.zero_grad()
            loss = model(data(step)).square().mean()
            loss.backward()
            optimizer.step()
            moved[step] = float((model[3].weight.detach() - before).norm())
            monitor.step(loss=loss)
    run = store.read(tmp_path)
    first = next(step for step, _ in run.series("frobenius", "3") if step >= at)
    updates = run.series("update", "3")
    assert updates == [(step, pytest.approx(moved[step], rel=1e-3)) for step, _ in updates]
    for column in ("update", "radial", "scale_free_gradient"):
        steps, beside = ([step for step, _ in run.series(column, row)] for row in ("3", "0"))
        assert first in beside and set(beside) - set(steps) <= {first}
        assert (first in steps) <= (not whole and every == 5)  # the new parameter was there before the step
    assert dict(run.series("gradient", "3"))[first] > 0
    exchanged = [note["sentence"] for note in run.notes]
    assert exchanged == [f"3: found to be another module at step {first}, of the same shape; its row goes on."] * whole


def test_a_layer_that_was_just_found_is_not_said_not_to_run(tmp_path):
    model = small()
    with ng.Monitor(model, tmp_path, every=1) as monitor:
        loop(model, monitor, 2)
        model[1] = nn.RMSNorm(8)
        model.append(nn.LayerNorm(2))
        loop(model, monitor, 2)
    run = store.read(tmp_path)
    assert not any("run" in note["sentence"].split() for note in run.notes)
    assert [step for step, _ in run.series("sigma_rms", "1")] == [1, 2, 4]
    assert [step for step, _ in run.series("sigma_rms", "4")] == [4]


def test_what_is_taken_out_or_gets_another_shape_is_said_once_and_measured_as_it_is(tmp_path):
    model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 8), nn.Linear(8, 2))
    with ng.Monitor(model, tmp_path, every=1) as monitor:
        loop(model, monitor, 2)
        kept = model[3]
        model[3] = nn.Identity()
        model[4] = nn.Linear(8, 3)
        loop(model, monitor, 2)
        nn.init.constant_(kept.weight, 100.0)  # is measured no more
        loop(model, monitor, 1)
    run, last = store.read(tmp_path), model
    assert run.layers == ["0", "1", "3", "4", "4 (from step 3)"]
    (said,) = (note["sentence"] for note in run.notes)
    assert said == "3, 4: no part of the model any more at step 3; not measured since."
    assert [step for step, _ in run.series("norm_lower", "3")] == [1, 2]
    assert [step for step, _ in run.series("norm_lower", "4")] == [1, 2]
    assert [step for step, _ in run.series("norm_lower", "4 (from step 3)")] == [3, 4, 5]
    found, product = run.series("norm_lower", "4 (from step 3)")[-1][1], run.steps[-1]["totals"]["log10_P_w_lower"]
    assert 0.99 * spectral(last[4].weight) < found <= spectral(last[4].weight)
    assert product == pytest.approx(math.log10(spectral(last[0].weight) * spectral(last[4].weight)), abs=0.01)


def test_a_weight_that_is_tied_later_is_measured_once_more(tmp_path):
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 4))
    with ng.Monitor(model, tmp_path, every=1) as monitor:
        loop(model, monitor, 1)
        model[2].weight = model[0].weight
        loop(model, monitor, 1)
    assert [step for step, _ in store.read(tmp_path).series("norm_lower", "2")] == [1]


def test_sizes_that_float32_has_no_squares_for_are_read(tmp_path):
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 2))
    with torch.no_grad():
        model[0].weight.mul_(1e25)
        model[1].weight.mul_(1e-25)
        model[2].weight.zero_()
    sizes = [float(layer.weight.detach().double().norm()) for layer in model]
    with ng.Monitor(model, tmp_path, every=1) as monitor:
        monitor.step()
    columns = store.read(tmp_path).steps[0]["columns"]
    assert columns["frobenius"] == pytest.approx(sizes, rel=1e-5)
    assert columns["norm_upper"][2] < 1e-15
    assert all(upper >= spectral(layer.weight) for upper, layer in zip(columns["norm_upper"], model, strict=True))


def test_tied_weights_are_measured_once(tmp_path):
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 4))
    model[2].weight = model[0].weight
    run = watched(model, tmp_path)
    assert [layer["tied"] for layer in run.header["layers"]] == [None, None, "0"]
    assert run.series("norm_lower", "2") == [] and len(run.series("norm_lower", "0")) == 3


def test_a_weight_made_of_others_has_the_norm_of_what_runs(tmp_path):
    model = small()
    model[0] = parametrizations.weight_norm(model[0])
    with torch.no_grad():
        model[0].parametrizations.weight.original0.mul_(5)
    run = watched(model, tmp_path, steps=1)
    true = spectral(model[0].weight)
    lower, upper = run.series("norm_lower", "0")[-1][1], run.series("norm_upper", "0")[-1][1]
    assert lower <= true <= upper <= 1.06 * lower
    assert run.layers == ["0", "1", "3"]


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.head = nn.LSTM(4, 6, batch_first=True), nn.Linear(6, 2)

    def forward(self, given):
        return self.head(self.rnn(given)[0])


class Attentive(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(4), nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, given):
        normal = self.norm(given)
        return given + self.attention(normal, normal, normal)[0]


@pytest.mark.parametrize(
    ("model", "layers"),
    [
        (Recurrent(), ["rnn.weight_ih_l0", "rnn.weight_hh_l0", "head"]),
        (Attentive(), ["norm", "attention.in_proj_weight", "attention.out_proj"]),
    ],
    ids=["lstm", "attention"],
)
def test_modules_with_several_weights(model, layers, tmp_path):
    run = watched(model, tmp_path, inputs=data(2, (3, 5, 4)))
    assert set(layers) <= set(run.layers) and not run.notes
    for layer in layers:
        assert len(run.series("gradient", layer)) == 3, layer
        if layer != "norm":
            weight = dict(model.named_parameters())[layer if "weight" in layer else f"{layer}.weight"]
            assert run.series("norm_lower", layer)[-1][1] <= spectral(weight)
            assert run.series("norm_upper", layer)[0][0] == 1 and run.series("proof_age", layer)[-1][1] >= 0


def test_sparse_gradients_count(tmp_path):
    torch.manual_seed(0)
    table, head = nn.Embedding(50, 4, sparse=True), nn.Linear(4, 2)
    model = nn.Sequential(table, head)
    with ng.Monitor(model, tmp_path, every=1) as monitor:
        loop(model, monitor, 2, inputs=torch.tensor([[1, 2, 1]]))
    run = store.read(tmp_path)
    dense = float(table.weight.grad.to_dense().norm())
    assert table.weight.grad.is_sparse
    assert run.series("gradient", "0")[-1] == (2, pytest.approx(dense, rel=1e-4))


@pytest.mark.parametrize(
    ("model", "options", "why"),
    [
        (nn.DataParallel(nn.Linear(2, 2)), {}, "nn.DataParallel copies the model"),
        (nn.ReLU(), {}, "has no parameters"),
        (nn.Linear(2, 2), {"budget": 3.0}, "expected a budget between 0 and 1"),
        (nn.Linear(2, 2), {"every": 0}, "expected every to be a whole number"),
        (nn.Linear(2, 2), {"readings": 10}, "full readings need a batch"),
    ],
    ids=["data-parallel", "no-parameters", "budget", "every", "readings"],
)
def test_what_cannot_be_watched_is_refused(model, options, why, tmp_path):
    with pytest.raises(ng.NormgaugeError, match=why):
        ng.Monitor(model, tmp_path, **options)


def test_arguments_in_another_order_are_answered(tmp_path):
    model = nn.Linear(2, 2)
    with pytest.raises(ng.NormgaugeError, match=r"a folder for the run after the model; got SGD.*optimizer=optimizer"):
        ng.Monitor(model, torch.optim.SGD(model.parameters()), tmp_path)
    with pytest.raises(ng.NormgaugeError, match="expected a budget such as"):
        ng.Monitor(model, tmp_path, torch.optim.SGD(model.parameters()))


def test_a_path_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ng.NormgaugeError, match="cannot write"):
        ng.Monitor(small(), tmp_path / "file" / "run")


def test_gradients_cleared_too_early_are_noted_once(tmp_path):
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with ng.Monitor(model, tmp_path, every=1) as monitor:
        for _ in range(3):
            model(data()).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            monitor.step()
    notes = [note["sentence"] for note in store.read(tmp_path).notes]
    assert len(notes) == 1 and "before zero_grad" in notes[0]


def witness(node):
    """A reference that dies with a node of the graph: nodes themselves take none."""

    class Hook:
        def __call__(self, gradients):
            return None

    hook = Hook()
    node.register_prehook(hook)
    return weakref.ref(hook)


def test_no_graph_is_kept_alive(tmp_path):
    model = small()
    with ng.Monitor(model, tmp_path, every=1) as monitor:
        loop(model, monitor, 1)
        loss = model(data()).square().mean()
        loss.backward()
        monitor.step(loss=loss)
        output = model(data())  # a pass that is heard, and read only later
        seen = [witness(loss.grad_fn), witness(output.grad_fn)]
        del loss, output
        gc.collect()
        assert [object_() for object_ in seen] == [None, None]


def test_no_module_is_ever_hooked_and_no_hook_is_left_after_close(tmp_path):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(64, 2))
    before = len(torch_modules._global_forward_hooks), len(torch_modules._global_forward_hooks_with_kwargs)
    monitor = ng.Monitor(model, tmp_path)
    assert len(torch_modules._global_forward_hooks) == before[0] + 1
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    monitor.close()
    after = len(torch_modules._global_forward_hooks), len(torch_modules._global_forward_hooks_with_kwargs)
    assert after == before


def test_a_monitor_that_is_forgotten_takes_its_hook_along(tmp_path):
    before = len(torch_modules._global_forward_hooks)
    model = small()
    monitor = ng.Monitor(model, tmp_path)
    monitor._journal.close()
    del monitor
    gc.collect()
    assert len(torch_modules._global_forward_hooks) == before


@pytest.mark.parametrize("norm", [nn.BatchNorm1d, nn.LayerNorm], ids=["batch", "layer"])
def test_the_training_is_the_same_to_the_bit(norm, tmp_path):
    ends = []
    for watch in (False, True):
        torch.manual_seed(5)
        model = nn.Sequential(nn.Linear(4, 8), norm(8), nn.Dropout(0.3), nn.Linear(8, 2))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        monitor = ng.Monitor(model, tmp_path, every=1) if watch else None
        loop(model, monitor, 20, optimizer=optimizer)
        ends.append((model.state_dict(), torch.get_rng_state()))
        if monitor is not None:
            monitor.close()
    (plain, random), (seen, random_seen) = ends
    assert plain.keys() == seen.keys() and torch.equal(random, random_seen)
    assert all(torch.equal(plain[name], seen[name]) for name in plain)


@pytest.mark.parametrize(
    ("owner", "name"),
    [(Instruments, "read"), (Instruments, "arm"), (Instruments, "finish"), (listener, "weight_before")],
)
def test_a_fault_of_the_instrument_never_reaches_the_loop(owner, name, tmp_path, monkeypatch, caplog):
    model = small()
    monitor = ng.Monitor(model, tmp_path, every=1)

    def broken(*args, **options):
        raise ValueError("a fault of ours")

    monkeypatch.setattr(owner, name, broken)
    with caplog.at_level(logging.WARNING, "normgauge"):
        loop(model, monitor, 8)
    monitor.close()
    run = store.read(tmp_path)
    assert run.end is not None and run.end["step"] == 8
    first, last = (note["sentence"] for note in run.notes if "a fault of ours" in note["sentence"])
    assert "training goes on" in first and "no lines after this" not in first and "no lines after this" in last


def test_a_model_that_changes_its_precision_is_followed_anew(tmp_path):
    model = nn.Sequential(nn.Conv1d(4, 6, 3, padding=1), nn.BatchNorm1d(6), nn.Flatten(), nn.Linear(30, 2))
    given = data(shape=(8, 4, 5))
    with ng.Monitor(model, tmp_path, every=1) as monitor:
        loop(model, monitor, 2, inputs=given)
        model.double()
        loop(model, monitor, 3, inputs=given.double())
    run = store.read(tmp_path)
    assert [line["step"] for line in run.steps] == [1, 2, 3, 4, 5] and not run.notes
    lower, upper = (run.series(name, "3")[-1][1] for name in ("norm_lower", "norm_upper"))
    assert lower <= spectral(model[3].weight) <= upper


def test_the_gradient_of_a_large_weight_is_whole_and_the_total_has_the_biases(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(7000, 10), nn.LayerNorm(10), nn.Linear(10, 300))
    inputs, wanted = torch.randn(16, 7000), torch.randint(1, 4, (16,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with ng.Monitor(model, tmp_path, every=1) as monitor:
        for _ in range(2):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), wanted)
            loss.backward()
            before = model[0].weight.detach().clone()
            optimizer.step()
            monitor.step(loss=loss, lr=0.01)
    run = store.read(tmp_path)
    assert run.series("gradient", "0")[-1][1] == pytest.approx(float(model[0].weight.grad.norm()), rel=1e-5)
    moved = float((model[0].weight.detach() - before).norm())
    assert run.series("update", "0")[-1][1] == pytest.approx(moved, rel=1e-4)
    everything = math.sqrt(sum(float(p.grad.square().sum()) for p in model.parameters()))
    assert run.total("gradient")[-1][1] == pytest.approx(everything, rel=1e-5)


def test_the_radial_part_belongs_to_the_weight_before_the_step(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(4, 8, bias=False), nn.BatchNorm1d(8, eps=1e-12), nn.ReLU(), nn.Linear(8, 2)
    ).double()
    with ng.Monitor(model, tmp_path, every=1) as monitor:
        loop(model, monitor, 3, inputs=data().double())
    assert [abs(value) < 1e-9 for _, value in store.read(tmp_path).series("radial", "0")] == [True] * 3


def test_a_broken_bias_is_seen_at_its_layer(tmp_path):
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with ng.Monitor(model, tmp_path, every=1) as monitor:
        for _ in range(2):
            optimizer.zero_grad()
            loss = model(data()).square().mean()
            loss.backward()
            model[3].bias.grad.fill_(math.nan)
            optimizer.step()
            monitor.step(loss=loss, lr=0.1)
    run = store.read(tmp_path)
    assert math.isnan(run.series("gradient", "3")[0][1])
    assert [(alarm["step"], alarm["layer"]) for alarm in run.alarms] == [(2, "3")]


def test_weights_that_never_move_are_noticed(tmp_path):
    model = small()
    with ng.Monitor(model, tmp_path, every=1) as monitor:
        for _ in range(12):
            model.zero_grad()
            loss = model(data()).square().mean()
            loss.backward()
            monitor.step(loss=loss, lr=0.1)
    assert [alarm["alarm"] for alarm in store.read(tmp_path).alarms] == ["no_update"]


def test_nothing_is_called_folded_without_every_sigma(tmp_path):
    model = small()
    compiled = torch.compile(model, backend="eager")
    with ng.Monitor(model, tmp_path, every=1) as monitor:  # of the model inside, whose modules do not run
        loop(compiled, monitor, 2)
    run = store.read(tmp_path)
    (note,) = run.notes
    assert note["sentence"].startswith("no σ of 1:") and "the model is compiled" in note["sentence"]
    assert run.total("log10_folded") == [] and run.series("folded", "0") == []
    assert run.series("norm_lower", "0")


class PreNorm(nn.Module):
    """A residual block with its normalizer in front."""

    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)
        nn.init.uniform_(self.norm.weight, 0.5, 2.0)

    def forward(self, given):
        return given + self.down(torch.relu(self.up(self.norm(given))))


GAUGES = {"none": 1.0, "all": 10.0, "channels": torch.tensor([10.0, 0.1, 3.0, 1.0, 5.0, 0.3, 7.0, 2.0])}


@pytest.mark.parametrize("how", ["all", "channels"])
def test_folded_does_not_move_with_the_gauge_of_the_normalizer_in_front(how, tmp_path):
    runs = []
    for change in ("none", how):
        torch.manual_seed(0)
        model = PreNorm().double()
        with torch.no_grad():
            for part in (model.norm.weight, model.norm.bias):
                part.mul_(GAUGES[change])
            model.up.weight.div_(GAUGES[change])
        with ng.Monitor(model, tmp_path / change, every=1) as monitor:
            model(data(3, (12, 8)).double()).square().mean().backward()
            monitor.step()
        runs.append(store.read(monitor.path))
    plain, other = (run.series("folded", "up")[-1][1] for run in runs)
    assert other == pytest.approx(plain, rel=1e-6)
    assert plain == pytest.approx(spectral(model.up.weight * model.norm.weight), rel=0.02)
    plain, other = (run.total("log10_folded")[-1][1] for run in runs)
    assert other == pytest.approx(plain, abs=2e-6)  # the file keeps six digits
    norms = [run.series("norm_lower", "up")[-1][1] for run in runs]
    assert norms[0] != pytest.approx(norms[1], rel=0.1)


def test_a_look_at_a_computed_weight_does_not_change_the_training(tmp_path):
    def trained(folder):
        torch.manual_seed(0)
        model = nn.Sequential(parametrizations.spectral_norm(nn.Linear(4, 8)), nn.ReLU(), nn.Linear(8, 2))
        before = {name: value.clone() for name, value in model.state_dict().items()}
        monitor = None if folder is None else ng.Monitor(model, folder, every=1)
        assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
        loop(model, monitor, 5)
        if monitor is not None:
            monitor.close()
        return model.state_dict()

    alone, beside = trained(None), trained(tmp_path)
    assert all(torch.equal(alone[name], value) for name, value in beside.items())


def test_a_copy_of_the_model_takes_no_monitor_along(tmp_path):
    model = small()
    plain = copy.deepcopy(model)
    with ng.Monitor(model, tmp_path, every=1) as monitor:
        loop(model, monitor, 2)
        stream = io.BytesIO()
        torch.save(model, stream)
        assert b"normgauge" not in stream.getvalue() and b"normgauge" not in pickle.dumps(model)
        stream.seek(0)
        averaged = torch.optim.swa_utils.AveragedModel(model)
        for other in (copy.deepcopy(model), torch.load(stream, weights_only=False), averaged.module):
            other(data())
            for mine, theirs in zip(plain.modules(), other.modules(), strict=True):
                assert mine.__dict__.keys() == theirs.__dict__.keys()
                assert not (theirs._forward_hooks or theirs._forward_pre_hooks or theirs._backward_hooks)
        loop(model, monitor, 1)
    assert [line["step"] for line in store.read(tmp_path).steps] == [1, 2, 3]


def test_lower_ends_follow_the_first_steps_of_adam(tmp_path):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(96, 160, bias=False), nn.ReLU(), nn.Linear(160, 96, bias=False))
    for layer in (net[0], net[2]):
        nn.init.normal_(layer.weight, std=0.02)
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    inputs, short = torch.rand(32, 96), []

    def compare(record):
        if record["kind"] == "step":
            true = [float(torch.linalg.matrix_norm(layer.weight.detach().double(), 2)) for layer in (net[0], net[2])]
            short.extend(1 - low / norm for low, norm in zip(record["columns"]["norm_lower"], true, strict=True))

    with ng.Monitor(net, tmp_path, every=1, sinks=[compare]) as monitor:
        for _ in range(12):
            optimizer.zero_grad()
            loss = net(inputs).square().mean() - net(inputs).mean()
            loss.backward()
            optimizer.step()
            monitor.step(loss=loss)
    assert len(short) == 24 and min(short) >= 0 and max(short) < 0.01  # with one turn a step 14 per cent are missing


def test_the_end_of_a_run_holds_its_last_loss(tmp_path):
    from normgauge.monitor.watching.scene import read_runs
    from normgauge.render.runs_words import run_sentences

    model = nn.Linear(3, 1)
    with ng.Monitor(model, tmp_path / "a", every=10) as monitor:
        for step in range(1, 16):
            monitor.step(loss=20.0 - step)
    items, _ = read_runs([str(tmp_path / "a")])
    assert items[0].run.end["loss"] == 5.0
    assert "to 5 at step 15." in " ".join(run_sentences(items[0]))


def test_layers_far_apart_in_size_are_both_read(tmp_path):
    torch.manual_seed(0)
    model = nn.ModuleList([nn.Linear(20, 20, bias=False), nn.Linear(20, 20, bias=False)])
    model[0].weight.data.mul_(1e17)
    monitor = ng.Monitor(model, tmp_path, every=1)
    for _ in range(4):
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        monitor.step(loss=1.0)
    monitor.close()
    run = store.read(monitor.path)
    assert len(run.steps) == 4 and not any("failed" in note["sentence"] for note in run.notes)
    assert all(lower > 0 for lower in run.steps[-1]["columns"]["norm_lower"])


def test_where_every_step_is_read_all_signs_are_asked_now_and_then_and_where_something_is_no_number(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    asked: list[int] = []
    with ng.Monitor(model, tmp_path, every=1, optimizer=optimizer) as monitor:
        observe = monitor._watch.observe

        def noted(seen, *, whole):
            asked.extend([seen.step] if whole else [])
            return observe(seen, whole=whole)

        monitor._watch.observe = noted
        for step in range(1, 91):
            optimizer.zero_grad()
            loss = model(torch.randn(16, 4)).square().mean()
            loss.backward()
            optimizer.step()
            if step == 88:
                model[2].weight.data[0, 0] = math.nan
            monitor.step(loss=loss)
    assert asked[:DENSE_STEPS] == list(range(1, DENSE_STEPS + 1))
    later = asked[DENSE_STEPS:]
    assert len(later) < 20 and max(b - a for a, b in itertools.pairwise([DENSE_STEPS, *later])) <= GAP
    assert 88 in later
    (alarm,) = store.read(monitor.path).alarms
    assert (alarm["step"], alarm["layer"]) == (88, "2")
