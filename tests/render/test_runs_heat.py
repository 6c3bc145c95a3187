"""Heat maps of layers over time, and the pictures they are."""

from __future__ import annotations

import base64
import math
import struct
import zlib

import torch
from torch import nn

from normgauge import Monitor
from normgauge.core import store
from normgauge.render import runs_heat
from normgauge.render.runs_data import (
    labelled_runs,
    step_span,
)
from normgauge.render.runs_heat import heat_maps
from normgauge.render.runs_table import row_cells, run_layer_rows
from tests.core.store.made import header, step


def decoded(address: str) -> tuple[int, int, bytes]:
    data = base64.b64decode(address.removeprefix("data:image/png;base64,"))
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, place = {}, 8
    while place < len(data):
        (size,) = struct.unpack(">I", data[place : place + 4])
        kind, content = data[place + 4 : place + 8], data[place + 8 : place + 8 + size]
        (check,) = struct.unpack(">I", data[place + 8 + size : place + 12 + size])
        assert check == zlib.crc32(kind + content)
        chunks[kind] = content
        place += 12 + size
    width, height = struct.unpack(">II", chunks[b"IHDR"][:8])
    assert len(chunks[b"PLTE"]) == 768
    return width, height, zlib.decompress(chunks[b"IDAT"])


def test_a_picture_is_a_png_of_its_cells():
    assert decoded(runs_heat.heat_picture([b"\x01\x02\x03", b"\x00\xff\x05"])) == (
        3,
        2,
        b"\x00\x01\x02\x03\x00\x00\xff\x05",
    )
    shades = [sum(runs_heat.palette()[3 * i : 3 * i + 3]) for i in range(1, 255)]
    assert shades == sorted(shades)  # darker is smaller, also without colours


def test_a_map_tells_small_large_absent_and_not_finite_apart(tmp_path):
    writer = store.create(tmp_path, header())
    for number in range(1, 101):
        record = step(number)
        record["columns"] = {"norm_lower": [1.0, None, 10.0 if number < 50 else math.inf, 0.0, 0.5, None, 100.0]}
        writer.append(record)
    writer.close()
    item = labelled_runs([store.read(tmp_path)])[0]
    ((title, drawn),) = heat_maps([item], step_span([item]))
    assert title == "norm, lower end (proved)"
    packed = base64.b64decode(drawn.split('data-cells="')[1].split('"')[0])
    width = len(packed) // 5
    lines = [set(packed[i * width : (i + 1) * width]) for i in range(5)]
    assert lines[2] == {1} and lines[4] == {254} and lines[3] == {1}  # zero, largest, smallest
    assert 255 in lines[1] and len(lines[1]) == 2
    assert drawn.count("<image") == 2


def test_one_value_has_a_scale_and_no_value_no_map(tmp_path):
    writer = store.create(tmp_path, header())
    writer.append({**step(1), "columns": {"norm_lower": [3.0]}})
    writer.close()
    item = labelled_runs([store.read(tmp_path)])[0]
    assert [title for title, _ in heat_maps([item], (1, 2))] == ["norm, lower end (proved)"]


def test_weights_that_become_no_numbers_are_pink_in_the_map_of_their_norms(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 24), nn.ReLU(), nn.Linear(24, 20))
    with Monitor(model, tmp_path, every=1) as monitor:
        for number in range(6):
            loss = model(torch.randn(8, 20)).square().mean()
            loss.backward()
            if number == 3:
                with torch.no_grad():
                    model[0].weight[0, 0] = torch.nan
            monitor.step(loss=loss)
    item = labelled_runs([store.read(tmp_path)])[0]
    title, drawn = next(heat_maps([item], step_span([item])))
    assert title == "norm, lower end (proved)"
    packed = base64.b64decode(drawn.split('data-cells="')[1].split('"')[0])
    first, second = packed[: len(packed) // 2], packed[len(packed) // 2 :]
    assert first[0] not in (0, 255) and first[-1] == 255 and 255 not in second
    assert run_layer_rows(item)[0].trend[-1][1] != 0.0 and row_cells(run_layer_rows(item)[0])[0].startswith("nan")
