"""How the number of a job's workers changes: which workers there are now, and who asked for how many.

This package may import plans and the state of a job. Start reading with `effective_plan.py`; `progress.py` counts
the steps that the workers share.
"""
