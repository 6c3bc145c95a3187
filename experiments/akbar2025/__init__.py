"""Akbar 2025, experiments 1 to 4, figures 5.1, 8.1 and 8.2, and what the text claims beside them.

config.toml    every setting and what is varied; plan.py reads it into units
tasks.py       data and losses; nets.py many small networks side by side; descent.py their optimizers
spectrum.py    Hessians of all of them at once
plane.py       experiment 1: a linear classifier in the plane, loss contours
regression.py  experiment 2: three layers of ten, loss, gradients, Hessian
margins.py     experiment 3: 50-20-1, margins and weight noise
scales.py      experiment 4: five layers from bad initializations
stable.py      largest stable learning rate; growth.py norms under descent and under flow; edge.py edge of stability
saddle.py      time to leave a saddle; noise.py noise of samples against noise of statistics
depth.py       gradients at initialization; shift.py scaled inputs; combined.py dropout, momentum, Adam
run.py         units side by side, one file each, goes on where it stopped; collect.py into results/
results.py     results; verdicts*.py published against ours; table*.py README; figures*.py, panels.py, contour.py
"""
