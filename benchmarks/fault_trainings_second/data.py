"""Data of the second set."""

from __future__ import annotations

import torch


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def picks(count, size, seed=5, many=80):
    draw = seeded(seed)
    return [torch.randperm(count, generator=draw)[:size] for _ in range(many)]


def spirals(count, seed=1, arms=3):
    draw = seeded(seed)
    arm = torch.randint(arms, (count,), generator=draw)
    radius = torch.rand(count, generator=draw) * 0.9 + 0.1
    angle = radius * 5 + arm * 6.2832 / arms + 0.12 * torch.randn(count, generator=draw)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], 1) * 1.8, arm


def shapes(count, seed=2, size=12):
    """RGB bytes: a disc, a square, a cross or stripes of some colour on grey noise."""
    draw = seeded(seed)
    kind = torch.randint(4, (count,), generator=draw)
    grid = torch.arange(size).float()
    out = torch.rand(count, 3, size, size, generator=draw) * 90 + 40
    for index in range(count):
        cx, cy = (torch.rand(2, generator=draw) * 4 + size / 2 - 2).tolist()
        r = float(torch.rand(1, generator=draw)) * 1.5 + 2.5
        dx, dy = (grid - cx)[None], (grid - cy)[:, None]
        mask = [
            (dx**2 + dy**2 < r * r),
            (dx.abs() < r) & (dy.abs() < r),
            (dx.abs() < 1) | (dy.abs() < 1),
            ((dx + 0 * dy).long() % 3 == 0) & (dy.abs() < r),
        ][int(kind[index])]
        colour = torch.rand(3, generator=draw) * 100 + 155
        out[index] = torch.where(mask[None], colour[:, None, None], out[index])
    return out, kind


def series(count, length=48, seed=3, scale=1.0, level=0.0):
    """Sums of two waves and noise, and the next four values."""
    draw = seeded(seed)
    period = torch.rand(count, 2, generator=draw) * 10 + 6
    phase = torch.rand(count, 2, generator=draw) * 6.28
    time = torch.arange(length + 4)[None, None]
    whole = (6.2832 * time / period[..., None] + phase[..., None]).sin().sum(1) + 0.1 * torch.randn(
        count, length + 4, generator=draw
    )
    whole = whole * scale + level
    return whole[:, None, :length], whole[:, length:]


def clouds(count, points=32, seed=4):
    """Point clouds on a sphere, a cube's surface, a ring or a line."""
    draw = seeded(seed)
    kind = torch.randint(4, (count,), generator=draw)
    raw = torch.randn(count, points, 3, generator=draw)
    ball = raw / raw.norm(dim=-1, keepdim=True)
    cube = raw.clamp(-0.8, 0.8)
    ring = torch.cat([raw[..., :2] / raw[..., :2].norm(dim=-1, keepdim=True), 0.05 * raw[..., 2:]], -1)
    line = raw * torch.tensor([1.0, 0.1, 0.1])
    cloud = torch.stack([ball, cube, ring, line], 1)[torch.arange(count), kind]
    return cloud + 0.1 * torch.randn(cloud.shape, generator=draw), kind


def people(count, seed=6):
    """Four numbers, two categories, a yes or no."""
    draw = seeded(seed)
    numbers = torch.randn(count, 4, generator=draw)
    city = torch.randint(30, (count,), generator=draw)
    job = torch.randint(12, (count,), generator=draw)
    odds = 2 * numbers[:, 0] * numbers[:, 1] + (city % 3 - 1) * 2.0 + (job % 2) * numbers[:, 2] * 2
    return numbers, city, job, (odds + 0.5 * torch.randn(count, generator=draw) > 0).float()


def reversals(count, draw, length=8, vocabulary=16):
    """A sequence and the same backwards after a start sign (0)."""
    words = torch.randint(1, vocabulary, (count, length), generator=draw)
    back = words.flip(1)
    return words, torch.cat([torch.zeros(count, 1, dtype=torch.long), back[:, :-1]], 1), back


def patterned(count, draw, length=16, vocabulary=24):
    """Arithmetic progressions of tokens: start and step vary."""
    start = torch.randint(vocabulary - 1, (count, 1), generator=draw)
    step = torch.randint(1, 3, (count, 1), generator=draw)
    return (start + step * torch.arange(length)) % (vocabulary - 1) + 1
