"""How long 50,000 points take to find their cell among 10,000 in 784 dimensions, and how much memory.

Run ``python benchmarks/assignment.py``; it writes results/assignment.json.
"""

from __future__ import annotations

import json
import resource
import time
from pathlib import Path

import torch

from normgauge.certificates.facts.cells import Partition

POINTS, CELLS, WIDTH = 50_000, 10_000, 784


def main() -> None:
    generator = torch.Generator().manual_seed(0)
    points, centres = (torch.rand(n, WIDTH, generator=generator) for n in (POINTS, CELLS))
    partition = Partition("voronoi", centres)
    wall, cpu = time.perf_counter(), time.process_time()
    cells = partition.assign(points)
    found = {
        "seconds": round(time.perf_counter() - wall, 2),
        "cpu_seconds": round(time.process_time() - cpu, 2),
        "threads": torch.get_num_threads(),
        "peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "cells_met": len(cells.unique()),
    }
    sample = torch.arange(0, POINTS, 500)
    exact = torch.cdist(points[sample].double(), centres.double()).argmin(1)
    found["agree_with_float64"] = float((cells[sample] == exact).double().mean())
    Path(__file__).with_name("results").joinpath("assignment.json").write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
