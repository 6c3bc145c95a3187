"""Writes the tables of docs/json.md from the declarations of the fields."""

from __future__ import annotations

import re
from pathlib import Path

from normgauge.core.fields import Ends, declared
from normgauge.core.proof import Proof, ProofStep
from normgauge.core.reading import Finding, LayerRecord, Published, Reading, Sample, Sigma, Witness

PAGE = Path(__file__).parent / "json.md"
RECORDS = (Reading, Finding, LayerRecord, Ends, Sigma, Sample, Witness, Proof, ProofStep, Published)


def table(cls: type) -> str:
    """A row a field: its name in files, its type, what it means and, for a published quantity, who states it."""
    fields = declared(cls)
    sourced = any(field.told.source for field in fields)
    lines = ["| field | type | meaning |" + " source |" * sourced, "| --- | --- | --- |" + " --- |" * sourced]
    for field in fields:
        source = f" {', '.join(field.told.source)} |" if field.told.source else " |" * sourced
        lines.append(f"| `{field.key}` | `{field.kind.words}` | {field.told.sentence} |{source}")
    return "\n".join(lines)


def written(page: str) -> str:
    """The page with every table fresh."""
    for cls in RECORDS:
        begin = f"<!-- fields of {cls.__name__} -->\n"
        page = re.sub(
            f"{begin}.*?\n\n", lambda _, cls=cls, begin=begin: f"{begin}{table(cls)}\n\n", page, flags=re.DOTALL
        )
    return page


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
