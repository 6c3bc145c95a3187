"""Writes docs/sources.md: for every section of the four sources the command that runs it, and what came out."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from normgauge.core.claim import OWN, Verdict
from normgauge.theory import CLAIMS
from normgauge.theory.claim import Claim

PAGE = Path(__file__).parent / "sources.md"
HEAD = """# The sources, section by section

Written by `make docs` from [the ledger](theory.md). A claim stands in every section that its place names; where nothing
in it can be computed it was read, not run. Figures come from committed results, `--train` trains [anew](reproduce.md).
"""
EMPTY = "not run: "


def eq(numbers: str) -> str:
    """Equations of these numbers, as a place names them; of one digit only where they are called so."""
    return rf"\beqs?\.? \(?(?:{numbers})\b|\((?=\d\d)(?:{numbers})\)"


# section -> where its claims say they stand, beside its own number; "not run: " and why, where there may be none
SECTIONS: dict[str, dict[str, str]] = {
    "Than 2025": {
        "Abstract": "abstract",
        "1 Introduction": "",
        "2.1 Further related work": "",
        "2.2 Notations": "not run: notation",
        "3.1 Batch normalization": rf"lemma 1\b|footnote|section 3(?![.\d])|{eq('1')}",
        "3.2 Layer normalization": rf"lemma 2\b|{eq('[23]')}",
        "3.3 Group normalization": rf"lemma 3\b|{eq('[45]')}",
        "4.1 The Lipschitz constant of a DNN": r"definition 4\b|lemma 5\b|theorem 6\b|remark 7\b|figure 1\b",
        "4.2 Smoothing DNNs by normalization": r"definition 8\b|theorem 9\b|corollary 1[01]\b|figure 2\b",
        "4.3 Smoothing the loss landscape": r"theorem 1[235]\b|corollary 14\b|remark 1[67]\b",
        "5.1 Benefits on training": r"corollary 1[89]\b",
        "5.2.1 Local Lipschitz continuity implies generalization": r"theorem 20\b|corollary 21\b",
        "5.2.2 Consequences for normalized DNNs": r"corollary 22\b",
        "6 Conclusion": "",
        "A.1 Properties of batch norm": "",
        "A.2 Properties of layer norm": rf"lemma 23\b|{eq('1[5-9]|2[0-4]')}",
        "A.3 Properties of group norm": rf"proof of lemma 3|{eq('2[5-8]')}",
        "B DNNs with normalizations": rf"appendix B\b|{eq('29|3[0-4]')}",
        "C Unnormalized DNNs": rf"appendix C\b|{eq('3[5-9]|4[0-9]|5[0-9]|6[0-5]')}",
        "D From local Lipschitz continuity to generalization": r"appendix D\b|\(66\)",
        "E.1 Experimental settings": "not run: settings, which the runs of E.2 and Figures 1 and 2 have",
        "E.2 Behaviors of EfficientNet": r"figure 3\b",
    },
    "Than 2023": {
        "Recent breakthroughs": "not run: examples of systems",
        "The open theoretical challenge": "known theory|challenge",
        "Basic concepts, errors of a trained model": "trained model|uniform bounds",
        "Approximation error: classical, modern": "approximation error",
        "Optimization error": "training problem|Allen-Zhu|optimization error",
        "Bias, variance, modern phenomenon": "modern phenomenon|bias",
        "Generalization: VC dimension": "VC dimension",
        "Generalization: weight norm": "weight norm",
        "Generalization: PAC-Bayes, meaningful bounds": "PAC-Bayes|meaningful",
        "Batch normalization, many normalizers, many why's": "batch normalization|many",
        "Normalization: our work, Lipschitz continuity": "our work|Lipschitz continuity",
        "Definition 1, Lemma 4": r"definition 1\b|lemma 4\b",
        "Exponential benefits: generalization": r"theorem 1\b|benefits: generalization",
        "Exponential benefits: optimization": "benefits: optimization|iteration complexity|convergence rate",
        "Take-home messages": "take-home|not run: said on the slides before",
    },
    "Summary page of Than 2025": {
        "Quick facts, executive and method summary": "quick facts|summary|not run: said again under the key results",
        "Key results": "key results?",
        "Mechanism 1: Lipschitz reduction": "mechanism 1|^break condition",
        "Mechanism 2: loss landscape": "mechanism 2",
        "Mechanism 3: local continuity": "mechanism 3",
        "Foundational learning": "foundational|quick.check",
        "Architecture: component map, critical path": "component map|critical path",
        "Architecture: design tradeoffs": "trade-?offs?",
        "Architecture: failure signatures": "failure",
        "Architecture: first experiments": "first experiment",
        "Open questions": "not run: questions, nothing is claimed",
        "Limitations": "limitation",
        "Confidence": "confidence",
        "Next checks": "next check",
    },
    "Akbar": {
        "Abstract": "abstract|not run: said again in the sections below",
        "1.1 Motivation": "",
        "1.2 Problem statement, 1.3 Research questions": "not run: questions, nothing is claimed",
        "1.4 Contributions": "contribution",
        "1.5 Organization": "not run: a table of contents",
        "2.1 Batch normalization and its early explanations": "",
        "2.2 Other normalization techniques": "",
        "2.3 Understanding the optimization benefits": "§2, Bjorck",
        "2.4 Normalization and generalization": "§2, normalization and generalization",
        "2.5 Open gaps": "not run: questions, nothing is claimed",
        "3.1 Neural network model": "definition 3",
        "3.2 Gradients and Hessians in networks with normalization": r"equation \(1\)|Hessian considerations",
        "4 Geometry of normalized landscapes": "",
        "4.1 Batch normalization": "",
        "4.2 Layer normalization": "",
        "4.3 Weight normalization": "table 1",
                "5 Impact on gradient flow, 5.1 Gradient flow equations": r"(?<![\w.])5\.1",
        "5.2 Synthetic trajectories": r"figure 5\.1",
        "6 Conditioning of loss surfaces": "",
        "6.1 Hessian of a simplified model": "",
        "7.1 Convergence of gradient descent": "",
        "7.2 Implicit regularization": "§7, ",
        "7.3 Putting it all together": "",
        "8 Experimental validation": r"experiments? \d|figure 8",
        "9.1 Architecture and initialization": "",
        "9.2 Limitations of analysis": "not run: limits that the author names",
        "9.3 Internal covariate shift revisited": "",
        "9.4 When normalization might hurt": "BN at inference|non-iid",
        "9.5 Extensions and open questions": "",
        "10 Conclusion": "",
        "A.1.1 Backpropagation through batch normalization": "",
        "A.1.2 Hessian structure around an equilibrium": "",
        "A.1.3 Notation summary": "not run: notation",
        "References": "not run: a list",
    },
}  # fmt: skip


def places(title: str, more: str) -> re.Pattern[str]:
    """What a place in this section looks like: the section's number, or a word of it."""
    number = re.match(r"([A-E]\.)?\d+(\.\d+)*(?= )", title)
    own = rf"(?<![\w.]){re.escape(number[0])}(?!\d)" if number else ""
    if number and "." not in number[0]:  # a bare number is a section only where it is called so
        own = rf"(?:sections? |§§?)(?:[\d.]+(?:, | and ))*§?{number[0]}(?!\.?\d)"
    return re.compile("|".join(filter(None, [own, more.partition(EMPTY)[0].rstrip("|")])) or "^$", re.IGNORECASE)


def found(source: str) -> dict[str, list[Claim]]:
    """The claims of each section."""
    claims = [claim for claim in CLAIMS.values() if claim.entry.source == source]
    return {
        title: [claim for claim in claims if places(title, more).search(claim.entry.at)]
        for title, more in SECTIONS[source].items()
    }


def lost() -> list[str]:
    """Published claims that stand in no section."""
    there = {claim.id for source in SECTIONS for claims in found(source).values() for claim in claims}
    return [f"{c.id}: {c.entry.at}" for c in CLAIMS.values() if c.entry.source != OWN and c.id not in there]


def row(title: str, claims: list[Claim], note: str) -> str:
    """A section, its commands and what came out."""
    if not claims:
        return f"| {title} | | {EMPTY}{note.partition(EMPTY)[2]} |"
    trained = dict.fromkeys(claim.entry.experiment for claim in claims if claim.entry.experiment)
    commands = [f"theory {' '.join(claim.id for claim in claims)}", *(f"reproduce {name}" for name in trained)]
    counts = Counter(claim.entry.verdict for claim in claims)
    told = {verdict: f"{verdict}: {counts[verdict]}" for verdict in Verdict if counts[verdict]}
    if Verdict.WRONG in told:
        told[Verdict.WRONG] += f" ({', '.join(c.id for c in claims if c.entry.verdict is Verdict.WRONG)})"
    read = sum(claim.check is None for claim in claims)
    came = "; ".join([*told.values(), *([f"read, not run: {read} of these"] if read else [])])
    return f"| {title} | {'<br>'.join(f'`normgauge {command}`' for command in commands)} | {came} |"


def page() -> str:
    """The page as a string."""
    lines = [HEAD]
    for source, sections in SECTIONS.items():
        rows = [row(title, claims, sections[title]) for title, claims in found(source).items()]
        lines += [f"## {source}", "", "| section | command | what came out |", "| --- | --- | --- |", *rows, ""]
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
