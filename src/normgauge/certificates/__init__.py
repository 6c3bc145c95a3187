"""What can be promised about unseen data: bounds (formulas), facts (what is measured), rows (one family a file).

``table`` holds `certify`. It is not loaded here, since the formulas in ``bounds`` need no torch.
"""
