"""Than 2025 (arXiv 2511.00958), figures 1 to 3, and what the paper does not show.

config.toml   every run, in groups, by priority
plan.py       config -> Spec, one a run
nets.py       Spec -> network with its initialization; data.py -> tensors; unpack.py makes the files data.py reads
steps.py      the training step, as a CUDA graph or plainly; run.py a whole run with exact resumption
layers.py     what sits where in a network; power.py operator norms; epoch.py the numbers of one epoch
spool.py      checkpoints handed to worker.py, which takes full readings on spare cores
together.py   several runs in one process; lane.py one such process
launch.py     lanes of runs side by side, workers, a time limit; mps.py; collect.py results into one folder
selfcheck.py  a minute that says what works on this machine
store.py      files, written whole; results.py committed results; table.py, figures.py what is made of them
"""
