import pytest
import torch

from normgauge.certificates import demo
from normgauge.certificates.demo import EncoderPlan, feature_certificate, shifted_images
from normgauge.core.certificate import RowKind
from normgauge.core.errors import InputError


@pytest.mark.usefixtures("few_draws")
def test_digits_end_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """500 images for the encoder, 942 for the head: the sharper slacks say something."""
    monkeypatch.setitem(demo.PLANS, "digits", EncoderPlan(500, 25, 8))
    told = []
    found = feature_certificate("digits", progress=lambda what, share: told.append((what, share)))
    assert found.samples == 942 and found.holdout == 355
    values = {row.key: row.value for row in found.rows if row.kind is RowKind.BOUND}
    assert values["holdout.clopper_pearson"] < values["features.theorem20.kl"] < 0.5
    assert values["features.theorem20.variation"] < 0.5
    assert found.row("theorem20.kl").kind is RowKind.VACUOUS
    assert {"training the encoder", "training the head"} <= {what for what, _ in told}
    assert all(0 <= share <= 1 for _, share in told)


def test_names() -> None:
    with pytest.raises(InputError, match="digits, mnist, fashion-mnist"):
        feature_certificate("imagenet")


def test_moved_images_keep_their_pixels() -> None:
    images = torch.rand(6, 1, 8, 8)
    for flip in (False, True):
        found = shifted_images(images, 1, flip)
        assert found.shape == images.shape
        torch.testing.assert_close(found.flatten(1).sort(1).values, images.flatten(1).sort(1).values)
