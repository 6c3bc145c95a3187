"""Draw every picture of the documentation from a real run: `make figures`, about two minutes on one core.

The CIFAR-10 ResNets are drawn where NORMGAUGE_DATA names the folder with their weights and images, and are left as
they are otherwise. So is the picture of a report where there is no browser.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch

import normgauge as ng
from normgauge.lab.training import train
from normgauge.lab.zoo import IMAGENET_MEAN, IMAGENET_STD, cifar10, cifar_resnet, digits, load_state, mlp, vit
from normgauge.loading import load_batch, load_model
from normgauge.render.figures import save

DOCS = Path(__file__).parent
IMAGES = DOCS / "images"
NET = DOCS.parent / "examples" / "net.py"


def draw(stem: str, readings: Sequence[ng.Reading], labels: Sequence[str], wanted: Sequence[str]) -> None:
    """Keep the ``wanted`` figures of some readings as images/STEM-FIGURE.svg."""
    with tempfile.TemporaryDirectory() as folder:
        for path in save(readings, folder, ("svg",), labels=labels):
            if path.stem in wanted:
                target = IMAGES / f"{stem}-{path.stem}.svg"
                shutil.copyfile(path, target)
                print(f"{target.name}: {target.stat().st_size / 1000:.0f} kB")


def small_network() -> list[ng.Reading]:
    """The network the documentation follows step by step."""
    readings = ng.readings(load_model(f"{NET}:build"), load_batch(f"{NET}:batch"))
    draw("net", readings, [str(r.scope) for r in readings], ("bracket", "waterfall-point", "sigma-point"))
    return readings


def normalizers() -> None:
    """One architecture, five normalizers, trained on digits."""
    images = digits("test").inputs[:50]
    kinds = ("none", "batch", "layer", "group", "rms")
    readings = []
    for kind in kinds:
        torch.manual_seed(0)
        model = mlp((64, 64, 64, 64, 10), norm=None if kind == "none" else kind)
        train(model, digits("train"), epochs=10, lr=3e-3)
        readings.append(ng.gauge(model, images, scope="point"))
    draw("norms", readings, kinds, ("bracket",))


def transformer() -> None:
    """A vision transformer of two blocks, trained on digits."""
    torch.manual_seed(0)
    model = vit(image=8, patch=2, channels=1, width=32, depth=2, norm="layer")
    train(model, digits("train").shaped(1, 8, 8), epochs=10, lr=2e-3)
    reading = ng.gauge(model, digits("test").shaped(1, 8, 8).inputs[:12], scope="point")
    draw("vit", [reading], ["at the samples"], ("waterfall", "sigma"))


def resnets(data: Path) -> None:
    """Two CIFAR-10 networks trained by others, on the first 100 test images."""
    images = cifar10("test", folder=data, limit=100).normalized(IMAGENET_MEAN, IMAGENET_STD).inputs
    labels, readings = ["resnet20", "resnet56"], []
    for depth in (20, 56):
        model = load_state(cifar_resnet(depth), data / "weights" / f"resnet{depth}_cifar10.safetensors").eval()
        readings.append(ng.gauge(model, images, scope="global"))
    draw("cifar", readings, labels, ("bracket", "waterfall-resnet20", "waterfall-resnet56", "sigma-resnet20"))


def page(readings: Sequence[ng.Reading]) -> None:
    """The first screen of a report."""
    from PIL import Image
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as tool:
        ng.report(list(readings), Path(folder) / "report.html")
        browser = tool.chromium.launch(executable_path=shutil.which("chromium"))
        view = browser.new_page(viewport={"width": 1000, "height": 700})
        view.goto((Path(folder) / "report.html").as_uri())
        view.screenshot(path=IMAGES / "report.png")
        browser.close()
    with Image.open(IMAGES / "report.png") as picture:
        few = picture.convert("P", palette=Image.Palette.ADAPTIVE, colors=64)  # flat colours: a third of the bytes
    few.save(IMAGES / "report.png", optimize=True)
    print(f"report.png: {(IMAGES / 'report.png').stat().st_size / 1000:.0f} kB")


def main() -> None:
    """Draw what can be drawn here."""
    torch.set_num_threads(1)
    IMAGES.mkdir(exist_ok=True)
    readings = small_network()
    normalizers()
    transformer()
    folder = os.environ.get("NORMGAUGE_DATA")
    if folder is None:
        print("NORMGAUGE_DATA is not set: the pictures of the ResNets stay as they are")
    else:
        resnets(Path(folder))
    if shutil.which("chromium") is None:
        print("chromium was not found: the picture of a report stays as it is")
    else:
        page(readings)


if __name__ == "__main__":
    main()
