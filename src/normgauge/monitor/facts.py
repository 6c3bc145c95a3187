"""What is known of a training without measuring: who holds which parameter, precisions, modes, the first pass."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from normgauge.monitor.layers import WatchedLayer, is_norm
from normgauge.monitor.optimizer import at_hand

MOST_NODES = 4000  # of the graph of a pass that are looked at
KEPT = 1 << 18  # numbers of an output that are kept from step to step, to tell which sample broke
REDUCTIONS = {0: "none", 1: "mean", 2: "sum"}  # as autograd numbers them
HOPS = 4  # from a loss to the node that reduced it
MOST_AT_LOSS = 16  # nodes next to a loss among which the end of the network is looked for

# Nodes that move or copy numbers, and those that leave some out
PASSING = ("View", "UnsafeView", "Reshape", "Permute", "Transpose", "T", "ToCopy", "Clone", "Squeeze", "Unsqueeze")
PICKING = ("Slice", "Select", "Index")

# The same for tensors that are spread over processes
SPREADING = ("_ToTorchTensorBackward", "_FromTorchTensorBackward", "RedistributeBackward")

MOST_HOPS = 6

# What takes logits at the end of a network, or their logarithms, and what makes none of them
ENDS = ("LogSoftmax", "BinaryCrossEntropyWithLogits", "NllLoss")
SQUASHES = {"Softmax": "softmax", "Sigmoid": "sigmoid"}

# Settings by which an optimizer is known whose steps do not grow with the gradient: Adam, RMSprop, Adadelta, Adagrad,
# Rprop, Adafactor, Muon
ADAPTIVE = frozenset({"betas", "alpha", "rho", "initial_accumulator_value", "etas", "beta2_decay", "ns_steps"})
Loss = torch.nn.modules.loss._Loss


@dataclass(frozen=True, slots=True)
class LayerFacts:
    """What is known of one layer.

    Attributes:
        trains: whether its weight takes gradients.
        held: how often the optimizers hold the weight; None where none was given.
        slope: whether the last backward pass left a gradient.
        dtype: of the weight.
        momentum: of the running statistics, for a batch normalization that updates them; None for others.
        foreign: whether it is a normalizer that torch does not compute itself, in wider numbers.
        owner: which of the optimizers holds the weight, counted from 0; None where none does, or none was given.
    """

    trains: bool = True
    held: int | None = None
    slope: bool = True
    dtype: torch.dtype = torch.float32
    momentum: float | None = None
    foreign: bool = False
    owner: int | None = None

    @property
    def learns(self) -> bool:
        """Whether somebody means to change the weight."""
        return self.trains and self.held != 0


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of the training at a reading.

    Attributes:
        layers: in the order of the rows.
        adaptive: whether an optimizer divides gradients by their size, as Adam does; None where none was given.
        eps: the smallest ε such an optimizer adds.
        moody: whether a module behaves otherwise in eval mode.
        nodes: how often each operation was met in the first pass.
        reduction: of the loss, where it is seen: ``mean``, ``sum`` or ``none``.
        classes: how many there are, where the loss is a cross entropy.
        entropy: whether it is the mean of one and nothing else.
        squashed: which of `ENDS` is given what a softmax or a sigmoid has made, and by which.
        coupled: whether an optimizer like Adam adds the decay of weights to the gradient that it divides.
        betas: of torch's Adam or a class made of it, those of the group whose second is lowest; None for others.
    """

    layers: Sequence[LayerFacts] = ()
    adaptive: bool | None = None
    eps: float | None = None
    moody: bool = False
    nodes: Mapping[str, int] = field(default_factory=dict)
    reduction: str = ""
    classes: int = 0
    entropy: bool = False
    squashed: tuple[str, str] | None = None
    coupled: bool = False
    betas: tuple[float, float] | None = None

    def of(self, row: int) -> LayerFacts:
        """The layer of this row; an ordinary one where nothing is known."""
        return self.layers[row] if row < len(self.layers) else LayerFacts()

    def met(self, *names: str) -> int:
        """How many operations of these names the first pass had."""
        return sum(count for node, count in self.nodes.items() if node.startswith(names))

    @property
    def attends(self) -> bool:
        """Whether the network has attention."""
        return self.met("ScaledDotProduct", "Softmax", "SafeSoftmax") > 0


class Passes:
    """What every pass tells at no cost: its mode, its small outputs, and once which operations it has.

    Attributes:
        training: whether the last pass with gradients ran in train mode.
        nodes: how often each operation was met, once a pass was seen.
        entered: what the first layer was given last, where it is small.
        made: the last output, where it is small.
        slope: the gradient of the loss by that output, once a backward pass has come by.
        target: what the loss compared it with, where a module of torch did.
        reduction: of that module.
        classes: how many classes a cross entropy was given.
        entropy, squashed: as in `Facts`.
        shape: of the last output.
    """

    def __init__(self) -> None:
        self.training: bool | None = None
        self.nodes: Mapping[str, int] = {}
        self.entered: Tensor | None = None
        self.made: Tensor | None = None
        self.slope: Tensor | None = None
        self.target: Tensor | None = None
        self.reduction = ""
        self.classes = 0
        self.entropy = False
        self.squashed: tuple[str, str] | None = None
        self._judged = False
        self.shape: tuple[int, ...] = ()

    def leave(self, module: nn.Module, output: Any) -> None:
        """Take in one pass of the model."""
        self.training = module.training
        made = output if isinstance(output, Tensor) else _first_tensor(output)
        if made is None:
            return
        self.shape = tuple(made.shape)
        self.made, self.slope = _small(made), None
        if self.made is not None and made.grad_fn is not None:
            self._await_slope(made.grad_fn, made.output_nr)
        if not self.nodes:
            self.nodes = operations_of(made.grad_fn)

    def enter(self, args: Sequence[Any]) -> None:
        """Take in what the first layer is given."""
        given = next((x for x in args if isinstance(x, Tensor)), None)
        self.entered = None if given is None else _small(given)

    def _await_slope(self, node: Any, place: int) -> None:
        """Keep the gradient that comes back to this output of a node; nothing of the graph is kept."""

        def keep(slopes: Sequence[Tensor | None]) -> None:
            slope = slopes[place]
            self.slope = None if slope is None else slope.detach()

        node.register_prehook(keep)

    def judge(self, module: Any, args: Sequence[Any]) -> None:
        """Take in one call of a loss of torch."""
        self.reduction = str(module.reduction)
        if len(args) > 1 and isinstance(args[0], Tensor) and isinstance(args[1], Tensor):
            self.target = _small(args[1])
            if isinstance(module, nn.CrossEntropyLoss | nn.NLLLoss) and args[0].ndim > 1:
                self.classes = args[0].shape[1]

    def reduce(self, loss: Any) -> None:
        """See how the loss handed in was reduced, from its graph."""
        node = loss.grad_fn if isinstance(loss, Tensor) else None
        if node is not None and not self._judged:
            self._judged = True
            self.entropy = node.name().startswith("NllLoss") and _reduction(node) == "mean"
            self._judge_end(node)
        found = _reductions(node, HOPS)
        if len(found) == 1:
            self.reduction = found.pop()

    def _judge_end(self, loss: Any) -> None:
        """See what takes the logits, how many there are, and whether they are what it takes."""
        left, seen = deque([loss]), 0
        while left and seen < MOST_AT_LOSS:
            node, seen = left.popleft(), seen + 1
            end = next((name for name in ENDS if node.name().startswith(name)), None)
            if end is None:
                left += [parent for parent, _ in node.next_functions if parent is not None]
                continue
            given = _picked_from(node.next_functions[0][0])
            name = "" if given is None else given.name().removesuffix("Backward0")
            if name == "LogSoftmax":
                left.append(given)
                continue
            if end == "LogSoftmax":
                shape = node._input_metadata[0].shape
                self.classes = self.classes or (shape[1] if len(shape) > 1 else 0)
            if name in SQUASHES:
                self.squashed = end, SQUASHES[name]
            return


def facts_of(model: nn.Module, layers: Sequence[WatchedLayer], optimizers: Sequence[Any], passes: Passes) -> Facts:
    """Gather what is known now."""
    groups = [group for one in optimizers for group in one.param_groups]
    held = Counter(id(p) for group in groups for p in group["params"]) if groups else None
    owners = {id(p): k for k, one in enumerate(optimizers) for group in one.param_groups for p in group["params"]}
    eps = [at_hand(group.get("eps")) for group in groups if "betas" in group]
    return Facts(
        [_layer(layer, held, owners) for layer in layers],
        any(ADAPTIVE & group.keys() and "lambd" not in group for group in groups) if groups else None,  # ASGD has both
        min((value for value in eps if value is not None), default=None),
        any(map(_changes, model.modules())),
        passes.nodes,
        passes.reduction,
        passes.classes,
        passes.entropy,
        passes.squashed,
        any(group.get("decoupled_weight_decay") is False for group in groups if group.get("weight_decay")),
        _lowest_betas(optimizers),
    )


def _lowest_betas(optimizers: Sequence[Any]) -> tuple[float, float] | None:
    """The betas of Adam with the lowest second one; not where it keeps the largest mean square it had (AMSGrad)."""
    adams = [one for one in optimizers if isinstance(one, torch.optim.Adam | torch.optim.AdamW | torch.optim.NAdam)]
    groups = [group for one in adams for group in one.param_groups if not group.get("amsgrad")]
    pairs = [tuple(map(at_hand, group["betas"])) for group in groups if len(group.get("betas", ())) == 2]
    known = [(first, second) for first, second in pairs if first is not None and second is not None]
    return min(known, key=lambda betas: betas[1], default=None)


def _reduction(node: Any) -> str | None:
    """How a loss was reduced, by its node; None where it is no loss of torch."""
    said = getattr(node, "_saved_reduction", None)
    return REDUCTIONS.get(said, "") if isinstance(said, int) else None


def _reductions(node: Any, hops: int) -> set[str]:
    """How the terms of a loss were reduced; nothing of one that somebody scales, since what it amounts to is theirs."""
    if node is None or not hops or node.name().startswith(("Div", "Mul")):
        return set()
    if (said := _reduction(node)) is not None:
        return {said}
    if node.name().startswith(("SumBackward", "MeanBackward")):
        return {"sum" if node.name().startswith("Sum") else "mean"}
    return set[str]().union(*(_reductions(parent, hops - 1) for parent, _ in node.next_functions))


def behind(node: Any) -> Any:
    """The first node that does more than move numbers."""
    for _ in range(MOST_HOPS):
        if node is None:
            return None
        name = node.name()
        if name.removesuffix("Backward0") not in PASSING and name not in SPREADING:
            return node
        node = node.next_functions[0][0]
    return node


def _picked_from(node: Any) -> Any:
    """The first node that does more than move numbers, or leave some out."""
    for _ in range(MOST_HOPS):
        node = behind(node)
        if node is None or not node.name().startswith(PICKING):
            return node
        node = node.next_functions[0][0]
    return node


def operations_of(node: Any) -> Mapping[str, int]:
    """How often each operation occurs in the graph behind a tensor."""
    found: Counter[str] = Counter()
    seen, left = {node}, [node]
    while left and len(seen) < MOST_NODES:
        now = left.pop()
        if now is None:
            continue
        found[now.name()] += 1
        fresh = [parent for parent, _ in now.next_functions if parent is not None and parent not in seen]
        seen.update(fresh)
        left += fresh
    return found


def _layer(layer: WatchedLayer, held: Mapping[int, int] | None, owners: Mapping[int, int]) -> LayerFacts:
    weight, module = layer.parameter, layer.module
    momentum, foreign = None, False
    if layer.role == "norm":
        tracked = module.training and getattr(module, "running_var", None) is not None
        momentum = getattr(module, "momentum", None) if tracked else None
        foreign = not type(module).__module__.startswith("torch.")
    if weight is None:
        return LayerFacts(False, momentum=momentum, foreign=foreign)
    count = None if held is None else held.get(id(weight), 0)
    slope, owner = weight.grad is not None, owners.get(id(weight))
    return _known(weight.requires_grad, count, slope, weight.dtype, momentum, foreign, owner)


@lru_cache(maxsize=256)
def _known(
    trains: bool,
    held: int | None,
    slope: bool,
    dtype: torch.dtype,
    momentum: float | None,
    foreign: bool,
    owner: int | None,
) -> LayerFacts:
    """Layers of which the same is known share it: there is one for each of them at every reading."""
    return LayerFacts(trains, held, slope, dtype, momentum, foreign, owner)


def _changes(module: nn.Module) -> bool:
    if isinstance(module, nn.modules.dropout._DropoutNd):
        return module.p > 0.0
    tables = (
        module._buffers,
        module.__dict__,
        module._parameters,
    )  # asking the module itself takes long where it has none
    found = next((table["running_var"] for table in tables if "running_var" in table), None)
    return (found is not None or getattr(type(module), "running_var", None) is not None) and is_norm(module)


def _first_tensor(output: Any) -> Tensor | None:
    values: Iterable[Any] = output.values() if isinstance(output, Mapping) else tree_leaves(output)
    return next((x for x in values if isinstance(x, Tensor) and x.grad_fn is not None), None)


def _small(tensor: Tensor) -> Tensor | None:
    """A small tensor without its graph; None for others, and for those that stand for many inside torch.func."""
    vectorized = torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    return tensor.detach() if tensor.numel() <= KEPT and not vectorized else None
