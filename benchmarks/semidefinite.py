"""The value of the semidefinite program LipSDP (Fazlyab et al. 2019) for a chain of linear maps with ReLU between them.

    pip install --target DIR cvxpy clarabel

Written down for cvxpy and solved by clarabel; the value is the solver's own and not rounded outwards. With e the change
of the input, v_k = W_k y_{k−1}, y_k = ½v_k + w_k, |w_k| ≤ ½|v_k| and multipliers Λ_k > 0, L² ≤ ρ as soon as

    ρ|e|² + Σ_k (w_kᵀΛ_kw_k − ¼ v_kᵀΛ_kv_k) ≥ |W_K y_{K−1}|²   for all e, w₁, …, w_{K−1}.

w_{K−1} enters by Λ_{K−1} alone and is minimised out: 1/Λ_{K−1} ≤ s, and one matrix inequality that does without it.
"""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
from torch import nn

Row = dict[str, Any]
METHOD = {"direct_solve_method": "faer"}  # the solver's own for large dense blocks


def chain_weights(model: nn.Module) -> list[np.ndarray]:
    """The matrices of a stack of linear maps; of the first one only what its row space sees."""
    weights = [m.weight.detach().double().numpy() for m in model.modules() if isinstance(m, nn.Linear)]
    left, sizes, _ = np.linalg.svd(weights[0], full_matrices=False)
    return [left * sizes, *weights[1:]]


def semidefinite_value(model: nn.Module) -> Row:
    """√ρ of the program, and CPU seconds of cvxpy and the solver."""
    import cvxpy as cp

    start = time.process_time()
    *weights, last = chain_weights(model)
    widths = [weights[0].shape[1], *(len(w) for w in weights[:-1])]
    total, rho = sum(widths), cp.Variable()
    whole = rho * np.diag([1.0] * widths[0] + [0.0] * (total - widths[0]))
    value, begin = np.eye(total)[: widths[0]], widths[0]  # y_{k−1} as a matrix over (e, w₁, …)
    for w in weights:
        multipliers, arriving = cp.Variable(len(w)), w @ value
        whole = whole - arriving.T @ cp.diag(multipliers) @ arriving / 4
        own = np.eye(total)[begin : begin + len(w)]
        if len(own):
            whole = whole + own.T @ cp.diag(multipliers) @ own
            value, begin = arriving / 2 + own, begin + len(w)
    inverse, cross = cp.Variable(len(weights[-1])), arriving.T @ last.T / 2
    rest = np.eye(len(last)) - last @ cp.diag(inverse) @ last.T
    limits = [cp.bmat([[whole, cross], [cross.T, rest]]) >> 0, inverse >= cp.inv_pos(multipliers)]
    problem = cp.Problem(cp.Minimize(rho), limits)
    problem.solve(solver=cp.CLARABEL, **METHOD)
    found = math.sqrt(float(rho.value)) if problem.status == "optimal" else None
    return {"semidefinite": found, "semidefinite_cpu_seconds": round(time.process_time() - start, 1)}
