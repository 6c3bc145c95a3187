"""Steering instead of measuring: a penalty, a budget and normalizers with a constant, all for the folded bound.

plan.py             the bound as a small formula: terms, sums along chains, joins at additions
planning.py         that formula read off a traced model
live_weights.py     the model's own tensors behind each term
channel_scales.py   what normalizers multiply channels by, and the spread they saw last
warm_norms.py       norms of many maps at once, from vectors that stay warm
capacity.py         the formula's value with its gradient
capacity_penalty.py `penalty`: a term to add to a loss
proved_norms.py     the same norms from above, proved, while weights move
capacity_budget.py  `cap`: a projection behind the optimizer's step
bounded_norms.py    LayerNorm, RMSNorm and GroupNorm with a global constant of choice; `bounded`, `unbounded`
"""
