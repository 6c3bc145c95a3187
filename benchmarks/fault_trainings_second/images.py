"""Images, point clouds and signals."""

from __future__ import annotations

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.fault_trainings.training import Outcome, Training, descend, faulty
from benchmarks.fault_trainings_second.data import clouds, picks, series, shapes

MEAN, STD = 120.0, 55.0


class Dense(nn.Module):
    """Each layer sees all before it."""

    def __init__(self, growth=12, depth=5, momentum=0.1, drop=0.2):
        super().__init__()
        self.entry = nn.Conv2d(3, 16, 3, padding=1)
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.BatchNorm2d(16 + i * growth, momentum=momentum),
                nn.ReLU(),
                nn.Conv2d(16 + i * growth, growth, 3, padding=1),
            )
            for i in range(depth)
        )
        self.last = nn.BatchNorm2d(16 + depth * growth, momentum=momentum)
        self.drop = nn.Dropout(drop)
        self.classes = nn.Linear(16 + depth * growth, 4)

    def forward(self, x):
        x = self.entry(x)
        for layer in self.layers:
            x = torch.cat([x, layer(x)], 1)
        return self.classes(self.drop(F.relu(self.last(x)).mean((2, 3))))


def dense(factory, *, gamma=0.1, look_at=None, restored=True, steps=130, rate=0.05, mislabelled=()):
    """MultiStepLR; `look_at` a look at the held-out images."""
    torch.manual_seed(110)
    images, kind = shapes(1100)
    images = (images - MEAN) / STD
    order = picks(900, 32)
    model = Dense()
    opt = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9, nesterov=True, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(opt, [80, 110], gamma)

    def held():
        model.eval()
        with torch.no_grad():
            return F.cross_entropy(model(images[900:]), kind[900:]).item()

    def loss_at(step):
        if step == look_at:
            held()
            if restored:
                model.train()
        rows = order[step % 80]
        labels = (kind[rows] + 1) % 4 if step in mislabelled else kind[rows]
        return F.cross_entropy(model(images[rows]), labels)

    losses = descend(factory, model, opt, loss_at, steps, scheduler=scheduler)
    return Outcome(losses, held())


class Next(nn.Module):
    """ConvNeXt-like, with a layer scale that begins near zero."""

    def __init__(self, width=24, depth=3, scaled=True, inside=True):
        super().__init__()
        self.inside = inside
        self.trunk = nn.Sequential(nn.Conv2d(3, width, 2, stride=2))
        self.depthwise = nn.ModuleList(nn.Conv2d(width, width, 5, padding=2, groups=width) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.mlps = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 3 * width), nn.GELU(), nn.Linear(3 * width, width)) for _ in range(depth)
        )
        self.gamma = nn.ParameterList(nn.Parameter(torch.full((width,), 1e-6)) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.fc = nn.Linear(width, 4)

    def forward(self, x):
        if self.inside:
            x = (x - MEAN) / STD
        x = self.trunk(x)
        for depthwise, norm, mlp, gamma in zip(self.depthwise, self.norms, self.mlps, self.gamma, strict=True):
            x = x + (gamma * mlp(norm(depthwise(x).permute(0, 2, 3, 1)))).permute(0, 3, 1, 2)
        return self.fc(self.norm(x.mean((2, 3))))


def convnext(factory, *, steps=160):
    torch.manual_seed(111)
    images, kind = shapes(1100, seed=12)
    order = picks(900, 40)
    model = Next()
    opt = torch.optim.AdamW(model.parameters(), lr=6e-3, weight_decay=0.05)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda s: min(1, (s + 1) / 30) * (0.5 + 0.5 * math.cos(math.pi * s / steps))
    )
    losses = descend(
        factory,
        model,
        opt,
        lambda s: F.cross_entropy(model(images[order[s % 80]]), kind[order[s % 80]]),
        steps,
        scheduler=scheduler,
    )
    with torch.no_grad():
        return Outcome(losses, F.cross_entropy(model(images[900:]), kind[900:]).item())


class Detector(nn.Module):
    """Heat map of where the shape is."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(
            [nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 24, 3, padding=1), nn.Conv2d(24, 24, 3, padding=1)]
        )
        self.heat = nn.Conv2d(24, 1, 1)

    def forward(self, x):
        for layer in self.layers:
            x = F.relu(layer(x))
        return self.heat(x)


def detect(factory, *, prior="heat", raw=False, rate=0.02):
    """BCE on a mask of bright pixels; the bias of the prior belongs to the last layer, not to every convolution."""
    torch.manual_seed(112)
    images, _ = shapes(900, seed=13)
    target = (images.mean(1, keepdim=True) > 165).float()
    if not raw:
        images = (images - MEAN) / STD
    order = picks(800, 32)
    model = Detector()
    for module in model.modules():
        if isinstance(module, nn.Conv2d) and (prior == "all" or module is model.heat):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu" if module is not model.heat else "linear")
            nn.init.constant_(module.bias, -math.log((1 - 0.01) / 0.01))
    opt = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    losses = descend(
        factory,
        model,
        opt,
        lambda s: F.binary_cross_entropy_with_logits(model(images[order[s % 80]]), target[order[s % 80]]),
        160,
    )
    with torch.no_grad():
        return Outcome(losses, F.binary_cross_entropy_with_logits(model(images[800:]), target[800:]).item())


class PointNet(nn.Module):
    def __init__(self, momentum=0.1):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv1d(3, 48, 1), nn.BatchNorm1d(48, momentum=momentum)
        self.conv2, self.bn2 = nn.Conv1d(48, 96, 1), nn.BatchNorm1d(96, momentum=momentum)
        self.fc1, self.bn3 = nn.Linear(96, 48), nn.BatchNorm1d(48, momentum=momentum)
        self.fc2 = nn.Linear(48, 4)

    def forward(self, x):
        x = F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x.mT))))))
        return self.fc2(F.relu(self.bn3(self.fc1(x.amax(-1)))))


def pointnet(factory, *, momentum=0.1, rate=2e-3):
    """An epoch of 25 batches whose last has four clouds."""
    torch.manual_seed(113)
    cloud, kind = clouds(1300)
    order = picks(1000, 48)
    model = PointNet(momentum)
    opt = torch.optim.Adam(model.parameters(), lr=rate)
    scheduler = torch.optim.lr_scheduler.StepLR(opt, 25, 0.6)

    def loss_at(step):
        rows = order[step % 80][: 4 if step % 25 == 24 else 48]
        return F.cross_entropy(model(cloud[rows]), kind[rows])

    losses = descend(factory, model, opt, loss_at, 150, scheduler=scheduler)
    model.eval()
    with torch.no_grad():
        return Outcome(losses, F.cross_entropy(model(cloud[1000:]), kind[1000:]).item())


class Tcn(nn.Module):
    def __init__(
        self, width=32, depth=4, act=F.relu, norm=None, skip=True, momentum=0.1, weight_norm=False, again=False
    ):
        super().__init__()
        self.act, self.skip, self.again = act, skip, again
        self.first = nn.Conv1d(1, width, 3, padding=1)
        self.convs = nn.ModuleList(
            nn.Conv1d(width, width, 3, padding=2 ** (i % 3), dilation=2 ** (i % 3)) for i in range(depth)
        )
        if weight_norm:
            for conv in self.convs:
                nn.utils.parametrizations.weight_norm(conv)
        self.norms = nn.ModuleList(
            nn.BatchNorm1d(width, momentum=momentum) if norm else nn.Identity() for _ in range(depth)
        )
        self.values = nn.Linear(width, 4)

    def forward(self, x):
        x = self.first(x)
        for conv, norm in zip(self.convs, self.norms, strict=True):
            h = self.act(norm(conv(x)))
            h = x + h if self.skip else h
            x = x + h if self.again else h  # the branch has its skip already
        return self.values(x[..., -8:].mean(-1))


def forecast(factory, *, scale=1.0, level=0.0, reduction="mean", rate=0.02, steps=200, optimizer="sgd", **form):
    torch.manual_seed(114)
    past, future = series(1500, scale=scale, level=level)
    if scale != 1.0:
        future = (future - level) / scale
    order = picks(1200, 64)
    model = Tcn(**form)
    if optimizer == "sgd":
        opt = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    else:
        opt = torch.optim.RMSprop(model.parameters(), lr=rate)
    criterion = nn.HuberLoss(reduction=reduction)
    losses = descend(factory, model, opt, lambda s: criterion(model(past[order[s % 80]]), future[order[s % 80]]), steps)
    model.eval()
    with torch.no_grad():
        return Outcome(losses, F.huber_loss(model(past[1200:]), future[1200:]).item())


DEEP = {"depth": 10, "skip": False, "rate": 0.05}
TRAININGS = (
    Training("densenet-milestones", partial(dense, look_at=60)),
    Training("densenet-wrong-labels-once", partial(dense, mislabelled=(30,))),
    Training("convnext-layer-scale-bytes", convnext),
    Training("detector-heat", detect),
    Training("pointnet-max", pointnet),
    Training("tcn-weight-norm", partial(forecast, weight_norm=True, optimizer="rmsprop", rate=2e-3)),
    faulty("densenet-gamma-ten", "rate too large", partial(dense, gamma=30.0), dense, begins=80),
    faulty(
        "densenet-early-look",
        "eval left on",
        partial(dense, look_at=10, restored=False),
        partial(dense, look_at=10),
        begins=10,
    ),
    faulty("detector-prior-everywhere", "dead relus", partial(detect, prior="all"), detect, layer="layers"),
    faulty("detector-bytes", "not normalized", partial(detect, raw=True), detect),
    faulty("pointnet-momentum-one", "batchnorm momentum", partial(pointnet, momentum=1.0), pointnet, layer="bn1"),
    faulty(
        "tcn-momentum-zero",
        "batchnorm momentum",
        partial(forecast, norm="batch", momentum=0.0),
        partial(forecast, norm="batch"),
        layer="norms.0",
    ),
    faulty(
        "tcn-prices",
        "not normalized",
        partial(forecast, scale=400.0, level=3000.0, rate=0.005),
        partial(forecast, rate=0.005),
    ),
    faulty("tcn-huber-sum", "wrong reduction", partial(forecast, reduction="sum"), forecast),
    faulty(
        "tcn-skip-again",
        "residual grows",
        partial(forecast, again=True, depth=10, rate=0.005),
        partial(forecast, depth=10, rate=0.005),
    ),
    faulty(
        "tcn-ten-sigmoids",
        "vanishing",
        partial(forecast, act=torch.sigmoid, **DEEP),
        partial(forecast, norm="batch", **DEEP),
    ),
)
