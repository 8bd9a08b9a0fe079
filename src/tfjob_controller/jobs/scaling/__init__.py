"""How the number of a job's workers changes: which workers exist now, and who requested how many.

This package may import plans and the state of a job. Start reading with `effective_plan.py`; `progress.py` counts
the steps that the workers share.
"""
