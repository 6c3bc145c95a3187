"""The trials of a config: the same every time, by settings alone, and the old ones stay when a sweep grows."""

from __future__ import annotations

from normgauge.lab.sweep.space import expand_trials, identity
from tests.lab.sweep.made import HEAD, config

GRID = '[grid]\n"network.options.norm" = ["batch", "layer", "none"]\n"training.lr" = [1e-3, 1e-2]'
RANDOM = (
    '[random]\ncount = {}\n"training.lr" = {{ log_uniform = [1e-4, 1e-1] }}\n"training.batch_size" = {{ int = [8, 9] }}'
)


def test_a_grid_is_every_combination_times_seeds(tmp_path):
    trials = expand_trials(config(tmp_path, GRID, top="seeds = 2"))
    assert len(trials) == 12 and len({trial.id for trial in trials}) == 12
    assert [trial.seed for trial in trials[:4]] == [0, 1, 0, 1]
    assert trials[2].point == {"network.options.norm": "batch", "training.lr": 1e-2}
    assert trials[2].settings["training.lr"] == 1e-2 and trials[2].settings["seed"] == 0
    assert trials == expand_trials(config(tmp_path, GRID, top="seeds = 2"))


def test_an_id_is_what_it_always_was(tmp_path):
    """Pinned: a folder of results must be recognised by later versions."""
    (trial,) = expand_trials(config(tmp_path))
    assert trial.id == "5234f0d21571"


def test_draws_are_the_same_and_go_on(tmp_path):
    few, many = (expand_trials(config(tmp_path, RANDOM.format(count))) for count in (4, 9))
    assert many[:4] == few and len({trial.id for trial in many}) == 9
    assert all(1e-4 <= trial.point["training.lr"] <= 1e-1 for trial in many)
    assert {trial.point["training.batch_size"] for trial in many} == {8, 9}
    other = expand_trials(config(tmp_path, RANDOM.format("4\nseed = 1")))
    assert not {trial.id for trial in other} & {trial.id for trial in few}


def test_another_key_leaves_the_draws_alone(tmp_path):
    without = expand_trials(config(tmp_path, RANDOM.format(3)))
    more = expand_trials(config(tmp_path, RANDOM.format(3) + '\n"training.momentum" = { uniform = [0, 0.9] }'))
    assert [t.point["training.lr"] for t in more] == [t.point["training.lr"] for t in without]


def test_a_grid_and_draws_are_multiplied(tmp_path):
    trials = expand_trials(config(tmp_path, '[grid]\n"training.epochs" = [1, 2]', RANDOM.format(3)))
    assert len(trials) == 6
    assert trials[0].point["training.lr"] == trials[3].point["training.lr"]


def test_the_same_draw_twice_is_one_trial(tmp_path):
    trials = expand_trials(config(tmp_path, '[random]\ncount = 20\n"training.epochs" = { choice = [1, 2] }'))
    assert sorted(trial.point["training.epochs"] for trial in trials) == [1, 2]


def test_defaults_and_places_do_not_change_an_id(tmp_path):
    (plain,) = expand_trials(config(tmp_path))
    (said,) = expand_trials(config(tmp_path, head=HEAD.replace("[data]", '[data]\ndata_dir = "x"\nset = "digits"')))
    (other,) = expand_trials(config(tmp_path, head=HEAD.replace("epochs = 2", "epochs = 3")))
    assert plain.id == said.id != other.id
    whole, real = (
        expand_trials(config(tmp_path, head=HEAD.replace("epochs = 2", f"epochs = 2\nlr = {lr}")))[0].id
        for lr in ("1", "1.0")
    )
    assert whole == real


def test_a_whole_number_drawn_for_a_rate_is_a_rate(tmp_path):
    (trial,) = expand_trials(config(tmp_path, '[random]\ncount = 1\n"training.lr" = { int = [1, 2] }'))
    assert isinstance(trial.settings["training.lr"], float)


def test_an_id_depends_on_every_setting():
    base = {"network.build": "mlp", "network.options.norm": "batch", "training.lr": 0.1, "seed": 0}
    changed = [
        base | {key: value} for key, value in (("network.options.norm", None), ("training.lr", 0.2), ("seed", 1))
    ]
    assert len({identity(settings) for settings in (base, *changed)}) == 4
