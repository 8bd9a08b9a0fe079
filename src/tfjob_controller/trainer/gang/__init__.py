"""What a job that runs as a gang requests from the gang scheduler, and what it may create once it is admitted.

This package may import plans and the state of replicas. Start reading with `admission.py`; `terms.py` says which jobs
are gangs, and `waiting.py` how long a job waits for its admission.
"""
