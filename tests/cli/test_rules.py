from __future__ import annotations

import json

from normgauge.cli import main


def test_every_rule_is_listed_with_formula_and_source(capsys):
    assert main(["rules", "--json", "-"]) == 0
    rules = json.loads(capsys.readouterr().out)["rules"]
    assert len(rules) > 40 and all(rule["formula"] and rule["source"] and rule["holds"] for rule in rules)
    by_id = {rule["id"]: rule for rule in rules}
    assert "torch.nn.Linear" in by_id["affine.linear"]["targets"]
    assert main(["rules"]) == 0
    shown = capsys.readouterr().out
    assert all(rule["id"] in shown for rule in rules) and f"{len(rules)} rules" in shown


def test_a_text_narrows_the_list(capsys):
    assert main(["rules", "linear", "--json", "-"]) == 0
    few = json.loads(capsys.readouterr().out)["rules"]
    assert few and all("linear" in (rule["id"] + " ".join(rule["targets"])).lower() for rule in few)
    assert main(["rules", "no such thing"]) == 1
    assert "no rule's id or layers contain" in capsys.readouterr().err


def test_the_markdown_table_has_one_line_a_rule(tmp_path, capsys):
    assert main(["rules", "--markdown", str(tmp_path / "rules.md")]) == 0
    assert main(["rules", "--json", "-"]) == 0
    rules = json.loads(capsys.readouterr().out)["rules"]
    lines = (tmp_path / "rules.md").read_text(encoding="utf-8").splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert len(table) == len(rules) + 2
    assert {line.replace("\\|", "").count("|") for line in table} == {7}
