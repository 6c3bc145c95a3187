"""Incidents: the cause first, with its layer, its step and what to do; what followed from it beneath."""

from __future__ import annotations

from pathlib import Path

from normgauge.core import store
from normgauge.render.runs import live_page, page_sections
from normgauge.render.runs_console import run_blocks, run_snapshot
from normgauge.render.runs_data import labelled_runs
from normgauge.render.runs_incidents import followed_sentence, incident_sentence, run_incidents
from tests.core.store.made import header, step

CAUSE = {
    "kind": "alarm", "step": 7, "alarm": "learning_rate", "layer": "", "sentence": "The loss grew by 30 in a step.",
    "value": 0.8, "threshold": 0.65, "advice": "Lower the rate tenfold.", "began": 5,
}  # fmt: skip


def consequence(number: int, **more: object) -> dict[str, object]:
    own = {"alarm": "sigma_explosion", "layer": f"blocks.{number}.norm", "sentence": "…", "step": number}
    return {"kind": "consequence", **own, "cause": "learning_rate", "cause_step": 7, **more}


def written_run(path: Path, consequences: int) -> store.Run:
    writer = store.create(path, header())
    for number in range(1, 12):
        writer.append(step(number))
        if number == 7:
            writer.append(CAUSE)
    for number in range(consequences):
        writer.append(consequence(number + 8))
    writer.append(consequence(9, cause="nothing"))  # of a cause that is not in the file
    writer.close()
    return store.read(path)


def test_the_cause_comes_first_and_what_followed_is_folded_beneath(tmp_path):
    run = written_run(tmp_path, 8)
    (incident,) = run_incidents(run)
    assert incident_sentence([incident]) == (
        "Learning rate, since step 5: The loss grew by 30 in a step. Lower the rate tenfold."
    )
    assert followed_sentence(incident).startswith("What followed from it: sigma explosion in blocks.8.norm at step 8; ")
    assert followed_sentence(incident).endswith("; 2 more.")
    first, second, *_ = run_blocks(labelled_runs([run]))[0].split("\n")
    assert first.startswith(f"[LOOK] {tmp_path.name}: Learning rate, since step 5: ")
    assert second.startswith("  What followed from it: ")


def test_every_page_begins_with_the_cause(tmp_path):
    shown = page_sections(labelled_runs([written_run(tmp_path, 3)]))
    verdict = shown["piece-verdict"]
    assert verdict.startswith(
        '<p class="verdict"><span class="badge bad">look here</span> Learning rate, since step 5: '
    )
    assert "<details><summary>3 consequences</summary>" in verdict
    page = live_page(shown, "", "", "Following 1 run")
    assert page.index("Learning rate, since") < page.index("Following 1 run") < page.index("piece-curves")


def test_a_script_gets_the_consequences_too(tmp_path):
    (item,) = labelled_runs([written_run(tmp_path, 2)])
    told = run_snapshot(item)
    assert len(told["alarms"]) == 1 and [c["step"] for c in told["consequences"]] == [8, 9, 9]


def test_strange_steps_and_layers_break_nothing():
    odd = ({"alarm": None, "layer": 5, "step": "x", "began": []}, {"step": 10**400, "began": -1})
    run = store.Run(Path("a"), {"layers": []}, alarms=odd, consequences=({"cause": {}, "cause_step": None},))
    assert [incident.first for incident in run_incidents(run)] == [0, 0]


def test_a_setting_is_named_beside_the_cause_and_not_among_what_followed():
    beside = [
        consequence(9),
        consequence(34, alarm="no_warmup", layer="", set_at=1),
        consequence(35, layer="", set_at=20),
    ]
    (incident,) = run_incidents(store.Run(Path("a"), {"layers": []}, alarms=[CAUSE], consequences=beside))
    assert followed_sentence(incident) == (
        "What followed from it: sigma explosion in blocks.9.norm at step 9. Suspects beside it: no warmup, set since "
        "the start (seen at step 34); sigma explosion, set at step 20 (seen at step 35)."
    )


def test_what_was_measured_of_a_consequence_is_shown_and_no_layer_named_twice(tmp_path):
    writer = store.create(tmp_path, header())
    writer.append(step(7))
    writer.append(CAUSE)
    grew = "head: its attention logits grew from 1.54 to 178."
    writer.append(consequence(7, alarm="attention_growth", layer="head", sentence=grew))
    writer.append(consequence(7, alarm="no_warmup", layer="", sentence="there is no warm-up.", set_at=1))
    writer.close()
    items = labelled_runs([store.read(tmp_path)])
    incidents = next(b for b in run_blocks(items) if getattr(b, "title", "") == "Incidents")
    cells = [(row[0], row[3]) for row in incidents.rows]
    assert ("head", "(it followed) its attention logits grew from 1.54 to 178.") in cells
    assert ("the network", "(a suspect) there is no warm-up.") in cells
    assert (
        "attention growth in head at step 7: its attention logits grew from 1.54 to 178"
        in (page_sections(items)["piece-verdict"])
    )
    (named,) = run_incidents(
        store.Run(Path("a"), {"layers": []}, alarms=[CAUSE | {"layer": "a.b", "sentence": "a.b: …"}])
    )
    assert incident_sentence([named]).startswith("Learning rate in a.b, since step 5: …")
