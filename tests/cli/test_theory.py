"""`normgauge theory` from the command line to the exit code, on claims of its own and on a few real ones."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from normgauge import theory as ledger
from normgauge.cli import main, theory
from normgauge.core.claim import Entry, Verdict
from normgauge.render import theory as theory_text
from normgauge.theory.claim import Claim, equals, refutes

DOCS = Path(__file__).parents[2] / "docs" / "theory.md"
WORDS = {
    "words": "‖BN‖ = ‖1/σ‖",
    "within": "σ = (0.5, 1)",
    "instead": "It is the largest entry.",
    "survives": "a bound",
}


def made(fails: bool = False) -> list[Claim]:
    def lemma(draw):
        values = draw.uniform(3, low=1.0, high=2.0)
        yield refutes("length", float(values.max()), published=float(values.norm()))
        yield equals("largest", float(values.max()), predicted=float(values.amax()) + fails)

    first = Entry(
        "T.L1", "Than 2025", "Lemma 1", "It is the length.", Verdict.WRONG, **WORDS, error=theory_text.FOREMOST[0]
    )
    rest = [
        Entry(f"T.R{i}", "Than 2025", f"Remark {i}", f"Opinion {i}.", Verdict.UNSUPPORTED, "so it is") for i in range(9)
    ]
    return [Claim(first, lemma), *map(Claim, rest)]


@pytest.fixture
def few(monkeypatch):
    def use(**options: bool) -> None:
        monkeypatch.setattr(ledger, "CLAIMS", {claim.id: claim for claim in made(**options)})

    use()
    return use


@pytest.fixture
def run(capsys, few):
    """Run the command; returns exit code, standard output and error."""

    def command(*arguments: object) -> tuple[int, str, str]:
        code = main(["theory", *map(str, arguments)])
        streams = capsys.readouterr()
        return code, streams.out, streams.err

    return command


def test_it_opens_with_the_errors_and_the_seed_to_repeat_it(run):
    code, out, err = run()
    assert (code, err) == (0, "")
    assert out.startswith("1 independent error in 10 published claims.") and "Not so: σ = (0.5, 1)" in out
    assert "Every check that was run passed: 1" in out and "Read, not run: 9" in out and "Opinion" not in out
    assert out.splitlines()[-1].startswith("The same instances again: normgauge theory --seed ")


def test_all_claims_are_a_table_that_a_seed_repeats(run):
    _, out, _ = run("--all")
    assert "Than 2025: 10 claims" in out and "Opinion 8" in out
    _, repeated, _ = run("--all", "--seed", out.splitlines()[-1].rpartition(" ")[2])
    row = next(line for line in out.splitlines() if line.startswith("T.L1 "))
    numbers = [word for word in row.split() if word[:1].isdigit() and "." in word]
    assert len(numbers) == 3 and " ".join(row.split()[:-2]) in " ".join(repeated.split())


def test_another_seed_draws_other_instances(run):
    values = {json.loads(run("--json", "-", *more)[1])["claims"][0]["measured"] for more in ([], [], ["--seed", 5])}
    assert len(values) == 3
    same = {run("--json", "-", "--seed", 5, "--claim", "T.L1")[1].split('"seconds"')[0] for _ in range(2)}
    assert len(same) == 1


def test_one_claim_in_full(run):
    code, out, _ = run("--claim", "t.l1", "--seed", 1)
    assert code == 0
    for words in ("T.L1: Than 2025, Lemma 1", "It is the length.", "It is the largest entry.", "refuted", "equal"):
        assert words in out
    assert "normgauge theory --claim t.l1 --seed 1" in out and "Opinion" not in out


def test_a_prefix_shows_several(run):
    _, out, _ = run("--claim", "T.R", "--list")
    assert "Than 2025 (arXiv 2511.00958 v2): 9 claims" in out and "T.L1" not in out


def test_a_verdict_chooses(run, capsys):
    _, out, _ = run("--list", "--verdict", "wrong")
    assert "Than 2025 (arXiv 2511.00958 v2): 1 claim\n" in out and "T.L1" in out and "Opinion" not in out
    code, out, _ = run("--verdict", "unsup", "--verdict", "wrong", "--seed", 1)
    assert code == 0 and " ".join(out.split()).endswith("--verdict unsupported --verdict wrong --seed 1")
    code, _, err = run("--verdict", "holds")
    assert code == 1 and "'holds' alone has 0" in err
    with pytest.raises(SystemExit):
        run("--verdict", "false")
    told = capsys.readouterr().err
    assert "expected one of holds, loose, wrong" in told and "what is false: wrong" in told
    code, _, err = run("Remark 3", "--verdict", "wrong")
    assert code == 1 and "'Remark 3' alone has 1, 'wrong' alone has 1" in err
    assert "T.L1" in run("wrong", "--list")[1] and "Opinion" not in run("wrong", "--list")[1]


def test_a_place_chooses(run):
    _, out, _ = run("--list", "remark 3")
    assert "Than 2025 (arXiv 2511.00958 v2): 1 claim\n" in out and "T.R3" in out
    _, out, _ = run("--claim", "Lemma 1", "--seed", 2)
    assert "Than 2025: arXiv 2511.00958 v2." in out
    assert "T.L1: Than 2025, Lemma 1" in out and "normgauge theory --claim 'Lemma 1' --seed 2" in out
    assert run("Remark 11")[0] == 1
    assert run("", "Lemma", 1)[0] == 1  # an empty variable of a shell is no name


def test_a_question_is_answered_with_the_place(capsys):
    assert main(["theory", "--list", "Is Lemma 2 wrong?"]) == 0
    out = capsys.readouterr().out
    assert "T.L2 " in out and "T.L2.global" in out and "T.C11.reduce" in out
    assert main(["theory", "T.C11.reduce", "--claim", "Lemma 2", "--verdict", "wrong", "--seed", "1"]) == 0
    assert main(["theory", "--list", "Lemma 2", "--verdict", "wrong"]) == 0
    assert "7 more at Lemma 2: holds: 7" in capsys.readouterr().out
    assert main(["theory", "--list", "Lemma 5.1"]) == 0
    index, _, beside = capsys.readouterr().out.partition("Elsewhere, wrong by the same error: ")
    assert "7 claims" in " ".join(index.split()) and "A.P4.3 (wrong; Akbar, proposition 4.3" in " ".join(beside.split())


def test_a_place_without_its_quotes_is_the_same(run):
    with_, without = run("Lemma 1", "--seed", 2), run("Lemma", 1, "--seed", 2)
    assert [line for line in with_[1].splitlines() if " ms" not in line] == [
        line for line in without[1].splitlines() if " ms" not in line
    ]


def test_nothing_drawn_has_no_instances_to_repeat(run):
    code, out, _ = run("T.R1")
    assert code == 0 and "Read, not run: 1" in out and "same instances" not in out


def test_a_list_is_short(capsys):
    """A claim takes a few lines of 80 columns, not ten."""
    assert main(["theory", "--list", "T"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80 and len(lines) < 4 * sum(name.startswith("T.") for name in ledger.CLAIMS)


def test_json_has_the_contract(run, tmp_path):
    code, out, _ = run("--seed", 3, "--json", tmp_path / "a.json")
    told = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))
    assert code == 0 and "Than 2025" in out  # the errors as well
    assert told["seed"] == 3 and told["passed"] is True and len(told["claims"]) == 10
    first = told["claims"][0]
    assert (first["id"], first["at"], first["verdict"], first["words"]) == ("T.L1", "Lemma 1", "wrong", "‖BN‖ = ‖1/σ‖")
    assert first["passed"] is True and first["findings"][0]["published"] > first["measured"] > 1
    assert (told["schema"], told["independent_errors"], told["claims"][1]["ran"], told["claims"][1]["passed"]) == (
        2,
        1,
        False,
        None,
    )


def test_a_failed_check_is_named_last_and_is_exit_code_one(run, few):
    few(fails=True)
    code, out, err = run("--seed", 4)
    assert code == 1 and err == ""
    last = out.splitlines()[-1]
    assert last.startswith("failed: T.L1 (seed 4): largest: not equal, measured 1.")
    code, out, err = run("--seed", 4, "--json", "-")
    assert code == 1 and json.loads(out)["passed"] is False
    assert err.startswith("normgauge: failed: T.L1") and err.count("\n") == 1


def test_an_unknown_claim_takes_one_line_with_the_nearest(run):
    code, out, err = run("--claim", "T.L2")
    assert code == 1 and out == ""
    assert err.startswith(
        "normgauge: claim: expected an id such as T.L1, a place such as 'Lemma 1', or words that a claim has, got "
        "'T.L2'; nearest: T.L1"
    )
    assert err.count("\n") == 1


def test_the_page_is_written(run, tmp_path):
    code, out, _ = run("--html", tmp_path / "a.html", "--seed", 1)
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert code == 0 and "10 published claims" in out and "Of 10 published claims" in page and 'id="T.L1"' in page
    _, out, _ = run("--html", "-", "--claim", "T.L1")
    assert out.startswith("<!doctype html>") and out.endswith("</html>\n")


def test_the_list_checks_nothing(run, few, tmp_path):
    few(fails=True)
    code, out, _ = run("--list")
    assert code == 0 and "It is the length." in out and "FAILED" not in out
    code, out, _ = run("--list", "--json", "-")
    claims = json.loads(out)["claims"]
    assert code == 0 and len(claims) == 10 and "passed" not in claims[0] and claims[0]["within"] == "σ = (0.5, 1)"
    code, out, _ = run("--markdown", tmp_path / "a.md")
    assert (code, out) == (0, "") and "| T.L1 | Lemma 1 | wrong |" in (tmp_path / "a.md").read_text(encoding="utf-8")
    code, _, err = run("--list", "--html", tmp_path / "a.html")
    assert code == 1 and "--html shows what the checks found" in err and not (tmp_path / "a.html").exists()


@pytest.mark.parametrize("seed", ["-1", "x", "1.5", "1" + "0" * 12])
def test_a_seed_is_a_whole_number(run, capsys, seed):
    with pytest.raises(SystemExit) as ended:
        run("--seed", seed)
    assert ended.value.code == 1
    assert f"expected a whole number from 0 to 999999999999, got '{seed}'" in capsys.readouterr().err


def test_the_largest_seed_is_taken(run):
    assert run("--seed", theory.LARGEST - 1, "--claim", "T.L1")[0] == 0


def test_a_file_that_cannot_be_written_is_refused_before_the_checks(run, monkeypatch):
    monkeypatch.setattr(ledger, "check_claims", lambda *_: pytest.fail("a check was run"))
    code, _, err = run("--json", "/nowhere/at/all.json")
    assert code == 1 and "cannot write" in err and err.count("\n") == 1


def test_progress_tells_the_claim_and_how_far(few, monkeypatch):
    seen = []

    class Bar:
        def __enter__(self):
            return lambda stage, fraction: seen.append((stage, fraction))

        def __exit__(self, *_):
            return None

    monkeypatch.setattr(theory, "progress_bar", Bar)
    assert main(["theory", "--json", "/dev/null"]) == 0
    assert seen[0] == ("T.L1", 0.0) and seen[-1] == ("T.R8", 0.9) and len(seen) == 10


def test_help_teaches_the_verdicts(capsys):
    with pytest.raises(SystemExit):
        main(["theory", "--help"])
    told = capsys.readouterr().out
    for words in (
        "gauge-dependent          the number moves",
        "theory --claim T.L1",
        "0 every check that was run passed",
        "difference  of measured from predicted",
    ):
        assert words in told


def test_the_page_of_the_documentation_is_fresh(capsys):
    assert main(["theory", "--markdown", "-"]) == 0
    assert capsys.readouterr().out == DOCS.read_text(encoding="utf-8"), "run `make docs`"


def test_the_page_tells_what_is_true_of_all_that_does_not_hold():
    page = re.sub(r"\\(.)", r"\1", DOCS.read_text(encoding="utf-8"))
    for name in ("T.L3", "T.T9", "T.C10.1", "T.T20.13", "T.AE.fig1"):
        assert ledger.CLAIMS[name].entry.instead in page


@pytest.mark.parametrize("name", ["T.C19.exponent", "T.C18.depth"])
def test_real_claims_pass(name, capsys):
    assert main(["theory", "--claim", name, "--json", "-"]) == 0
    (claim,) = json.loads(capsys.readouterr().out)["claims"]
    assert claim["id"] == name and claim["passed"] is True and claim["findings"]
