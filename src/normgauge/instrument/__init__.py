"""The measuring instrument: from a model and a batch to one reading.

measure.py      gauge(), readings(): the pipeline on one screen
session.py      the options and a model traced and checked; replay.py runs its tape again
trace/          run a model once and write down its steps
rules/          what one step does to a slope, one family a file; normalizer.py says what a normalizer is
spectral/       operator norms of tensors as proved enclosures
compose.py      the rules' answers folded over the traced graph
balance/        the balanced bound: minimise over the rescalings that leave the function alone
probe/          what is found rather than proved: Jacobian norms, secants, search
slopes.py       the largest slope found; stretch.py what each layer did there
records.py      numbers of every layer; assembly.py one reading of all of them; fingerprint.py what was measured
pictures.py     what a batch of images looks like in a report
testing/        check_rule(): the contract test for a rule of your own, public as `normgauge.testing`
"""
