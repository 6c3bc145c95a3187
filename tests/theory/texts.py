"""The texts of the sources, read so that a formula is found however it is set."""

from __future__ import annotations

import os
import re
import unicodedata
from functools import cache
from importlib import import_module
from pathlib import Path

from normgauge.cli.reproduce import papers
from normgauge.core.checkout import checkout

SIGNS = {
    r"\|": "‖", r"\Vert": "‖", r"\cdots": "", r"\cdot": "", r"\ldots": "", r"\dots": "", r"\leq": "≤", r"\le": "≤",
    r"\geq": "≥", r"\ge": "≥", r"\approx": "≈", r"\times": "×", r"\infty": "∞", r"\sqrt": "√", r"\prod": "Π",
    r"\sum": "Σ", r"\nabla": "∇", r"\partial": "∂", r"\forall": "∀", r"\exists": "∃", r"\in": "∈", r"\to": "→",
    r"\rightarrow": "→", r"\sim": "∼", r"\propto": "∝", r"\top": "ᵀ", r"\alpha": "α", r"\beta": "β", r"\gamma": "γ",
    r"\delta": "δ", r"\epsilon": "ϵ", r"\varepsilon": "ϵ", r"\eta": "η", r"\theta": "θ", r"\kappa": "κ",
    r"\lambda": "λ", r"\mu": "μ", r"\nu": "ν", r"\rho": "ρ", r"\sigma": "σ", r"\tau": "τ", r"\phi": "φ", r"\omega": "ω",
    r"\Omega": "Ω", r"\Delta": "Δ", r"\Sigma": "Σ", r"\ell": "ℓ", r"\neq": "≠", r"\pm": "±", r"\perp": "⊥",
}  # fmt: skip
SAME = str.maketrans("ε−–—’‘“”∏∑~|", "ϵ---''\"\"ΠΣ∼‖", "·…⋯⋅&")
DRESS = "mathbf|mathcal|mathbb|mathrm|mathit|boldsymbol|text|textit|textbf|hat|tilde|bar|widehat|operatorname"
END = r"(?![a-zA-Z])"
PLACE = re.compile(
    r"(?:Lemma|Theorem|Corollary|Remark|Definition|Proposition|Example|Table|Figure|Fig\.|Experiment|Mechanism)\s*[\dA-Z.]+\d*"
    r"|\(\d+\)|\b[A-Z]?\.?\d+(?:\.\d+)+\b|\bsection \d+\b(?!\.\d)|\beqs?\. \(?\d+",
    re.IGNORECASE,
)


def plain(text: str) -> str:
    """Letters and signs alone: no spaces, braces, emphasis or commands; one form of each sign, lower case.

    >>> plain(r"$\\|\\text{BN}\\|_{Lip} = \\frac{1}{\\sigma}$") == plain("‖BN‖_Lip = 1/σ")
    True
    """
    text = re.sub(r"-\n(?=[a-z])", "", text)
    text = re.sub(rf"\\(?:left|right|[bB]igg?){END}", "", text)
    for _ in range(4):  # as deep as they are nested
        text = re.sub(rf"\\(?:{DRESS}){END}\s*\{{([^{{}}]*)\}}", r"\1", text)
        text = re.sub(r"([_^])\{([^{}]*)\}", r"\1\2", text)
        text = re.sub(r"\\[dt]?frac\{([^{}]*)\}\{([^{}]*)\}", r"\1/\2", text)
    for name in sorted(SIGNS, key=len, reverse=True):
        text = text.replace(name, SIGNS[name])
    text = re.sub(rf"\\(?:{DRESS}){END}", "", text)
    text = "".join(sign for sign in unicodedata.normalize("NFD", text) if not unicodedata.combining(sign))
    return re.sub(r"[\s{}$*\\`#_^()\[\]]", "", text.translate(SAME)).lower()


@cache
def folder() -> Path | None:
    """Where the texts are, if a folder is named."""
    named = os.environ.get("NORMGAUGE_PAPERS")
    return Path(named) if named and Path(named).is_dir() else None


@cache
def text(title: str) -> str:
    """The text of the source of that title, plain."""
    where = folder()
    assert where is not None
    found = {}
    for path in sorted(where.glob("*.txt")):
        whole = plain(path.read_text(encoding="utf-8"))
        if plain(title) in whole[:3000]:
            found[path] = whole
    assert len(found) == 1, f"{title}: {len(found)} texts"
    return next(iter(found.values()))


def places(whole: str, words: str) -> list[int]:
    """Where the words stand; parts joined by " … " in their order, at most 1,500 signs apart."""
    first, *rest = [plain(part) for part in words.split(" … ")]
    found = [m.start() for m in re.finditer(re.escape(first), whole)]
    for start in list(found):
        end = start + len(first)
        for part in rest:
            nearest = whole.find(part, end, end + 1500)
            if nearest < 0:
                found.remove(start)
                break
            end = nearest + len(part)
    return found


def reproducible() -> set[str]:
    """The figures that `normgauge reproduce` draws, as paper/name."""
    studies = {paper: import_module(f"experiments.{paper}.figures") for paper in papers(checkout())}
    return {f"{paper}/{name}" for paper, study in studies.items() for name in study.ALL}
