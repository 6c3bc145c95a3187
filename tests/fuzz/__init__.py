"""Random networks against an adversarial search: no slope found may exceed a proved bound.

blocks.py   single operations, modules and functions
layers.py   normalizers, convolutions, pooling, reductions
written.py  layers as people write them out by hand
wiring.py   residuals, gates, in-place writes, shared modules, attention: blocks made of blocks
nets.py     a network, an input and a mode from one seed
attack.py   steep points and secants for the whole network
tracing.py  networks that are hard to trace: control flow, settings, casts, hooks, views, odd axes, state, chance
oracle.py   slopes of such a network by differences; imports nothing of the library
tracer.py   its readings against them
jobs.py     one seed's work, shared by processes
run.py      one network through everything; the summary of many
"""
