"""Plans the writes that a job requires: the actions as data, the planner that chooses them, and bodies of children.

This package may import plans and the state of a job; it writes nothing itself. Start reading with `planner.py`, whose
docstring is the contract with the reconciler.
"""
