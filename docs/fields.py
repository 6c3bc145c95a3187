"""Writes the tables of docs/json.md and docs/runs.md from the declarations of the fields."""

from __future__ import annotations

import re
from pathlib import Path

from normgauge.advice.remark import Advice, Fix, Remark
from normgauge.core.certificate import Certificate, Row
from normgauge.core.certified import CertifiedRadii, SampleRadius
from normgauge.core.claim import Comparison, Curve, Drawn, Entry, Outcome
from normgauge.core.compare import Change, LayerChange
from normgauge.core.curvature import Condition, Curvature, Density, Eigenvalue, LayerCurvature, TraceEstimate
from normgauge.core.fields import Ends, declared_fields
from normgauge.core.multipliers import Multipliers
from normgauge.core.proof import Proof, ProofStep
from normgauge.core.ratios import Law, LayerRatio, Ratios
from normgauge.core.reading import Finding, InverseSigma, LayerRecord, Published, Reading, Sample, Sigma, Witness
from normgauge.core.store.lines import Header, StepLine
from normgauge.core.symmetry import Symmetries, Symmetry
from normgauge.monitor.signs.sign import Alarm, Consequence

PAGES = [Path(__file__).parent / name for name in ("json.md", "runs.md")]
ALL = (
    *(Reading, Finding, LayerRecord, Ends, Sigma, Sample, Witness, Proof, ProofStep, Published, LayerChange, Change),
    *(
        Ratios,
        LayerRatio,
        Law,
        InverseSigma,
        Advice,
        Remark,
        Fix,
        Certificate,
        Row,
        Curve,
        Entry,
        Outcome,
        Symmetries,
        Symmetry,
    ),
    *(CertifiedRadii, SampleRadius, Multipliers),
    *(Curvature, Eigenvalue, TraceEstimate, LayerCurvature, Density, Condition, Header, StepLine, Alarm, Consequence),
)
RECORDS = {**{cls.__name__: cls for cls in ALL}, "Comparison": Comparison, "Drawn": Drawn}


def table(cls: type) -> str:
    """A row a field: its name in files, its type, what it means and, for a published quantity, who states it."""
    fields = declared_fields(cls)
    sourced = any(field.told.source for field in fields)
    lines = ["| field | type | meaning |" + " source |" * sourced, "| --- | --- | --- |" + " --- |" * sourced]
    for field in fields:
        source = f" {', '.join(field.told.source)} |" if field.told.source else " |" * sourced
        lines.append(f"| `{field.key}` | `{field.form.words}` | {field.told.sentence} |{source}")
    return "\n".join(lines)


def written(page: str) -> str:
    """The page with every table fresh."""
    for name, cls in RECORDS.items():
        begin = f"<!-- fields of {name} -->\n"
        page = re.sub(f"{begin}.*?\n\n", (begin + table(cls) + "\n\n").replace("\\", r"\\"), page, flags=re.DOTALL)
    return page


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(written(path.read_text(encoding="utf-8")), encoding="utf-8")
