"""The number of a job's workers: the workers that exist now, and the requests for another number.

This package may import plans and the state of a job. Start reading with `effective_plan.py`; `progress.py` counts
the steps that the workers share.
"""
