"""Many trainings from one TOML file: grid or random points, seeds, resumable, one process a trial.

keys: what a config may say; config: reading one; space: the trials it asks for.
building: network and data of a trial, and everything that can be refused before the first trial runs.
opened: which files a network is built from.
child: one trial in a process of its own; attempt: that process from outside; files: what lies in the folders.
engine, on_ray: what keeps several attempts going; drive: which trial next, retries, what was learnt.
"""

from __future__ import annotations
