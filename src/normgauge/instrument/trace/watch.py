"""Below the level of Python: which memory depends on the input, is overwritten, read by the program or drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from normgauge.instrument.trace.held import memory_place
from normgauge.instrument.trace.lent import written_by
from normgauge.instrument.trace.step import tensors_in

READS = torch.Tag.data_dependent_output  # equal, item: a number for the program
SHAPES = torch.Tag.dynamic_output_shape  # nonzero, masked_select: the data decides how many entries there are
ERRORS = {  # raise, or do not, by what they are given
    *("_linalg_check_errors", "linalg_cholesky_ex", "linalg_inv_ex", "_linalg_solve_ex", "linalg_lu_factor_ex"),
    *("_linalg_eigh", "_linalg_svd", "linalg_eig", "cholesky", "bernoulli", "multinomial", "poisson"),
    *("normal", "binary_cross_entropy", "histc", "_assert_async", "segment_reduce"),
}
SPARSE = ("sparse", "coalesce")  # how many entries there are is for the data to say
INDEXED = ("index", "gather", "scatter", "take", "embedding", "nll_loss", "floor_divide", "div", "remainder", "one_hot")
DRAWS = torch.Tag.nondeterministic_seeded


class OperatorWatch(TorchDispatchMode):
    """Follows every ATen operator of the run.

    Attributes:
        tainted: places of the memory that depends on the input.
        written: places overwritten since it was last cleared.
        reads: names of operators whose result left the tensors, or whose data decided a shape.
        draws: whether random numbers were drawn.
    """

    def __init__(self, before_write: Callable[[int], None]) -> None:
        super().__init__()
        self.tainted: set[int] = set()
        self.written: set[int] = set()
        self.reads: list[str] = []
        self.draws = False
        self.idle = False
        self.before_write = before_write

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here; saying so keeps torch from importing its compiler (seconds)."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.idle:
            return func(*args, **kwargs)
        with torch._C.DisableTorchFunction():  # what is looked at here is no step
            return self.watched(func, args, kwargs)

    def watched(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operator and note what it does."""
        sources = [memory_place(t) for t in tensors_in((args, kwargs))]
        targets = [memory_place(t) for t in written_by(func, args, kwargs)]
        for storage in targets:
            self.before_write(storage)
        touched = any(s in self.tainted for s in sources)
        if touched and self.tells(func, args, kwargs):
            self.reads.append(str(func.overloadpacket.__name__))
        out = func(*args, **kwargs)
        results = [memory_place(t) for t in tensors_in(out)]
        self.draws |= DRAWS in func.tags
        if touched:
            self.tainted.update(s for s in (*results, *targets) if s)
        else:  # freed memory comes back: what an untouched op has just filled is clean
            self.tainted.difference_update(r for r in results if r not in sources)
        self.written.update(t for t in targets if t)
        return out

    def tells(self, func: Any, args: Any, kwargs: Any) -> bool:
        """Whether an operator tells the program something about the input: a number, a shape or an error."""
        name = func.overloadpacket.__name__
        if READS in func.tags or name in ERRORS or any(part in name for part in SPARSE):
            return True
        if SHAPES in func.tags and self.shaped(func, args):
            return True
        if not any(part in name for part in INDEXED):
            return False
        whole = [t for t in tensors_in((args, kwargs)) if not (t.is_floating_point() or t.is_complex())]
        return any(t.dtype != torch.bool and memory_place(t) in self.tainted for t in whole)

    def shaped(self, func: Any, args: Any) -> bool:
        """Whether the input decides the result's shape; where a mask selects, the mask does."""
        aten = torch.ops.aten
        deciding = tensors_in(args)
        if func is aten.index.Tensor:
            deciding = [t for t in tensors_in(args[1]) if t.dtype in (torch.bool, torch.uint8)]
        elif func is aten.masked_select.default:
            deciding = tensors_in(args[1])
        return any(memory_place(t) in self.tainted for t in deciding)
