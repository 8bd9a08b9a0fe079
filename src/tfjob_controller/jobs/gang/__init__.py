"""Jobs that run as gangs: their requests to this project's or another gang scheduler, and what they may create.

This package may import plans and the state of replicas. Start reading with `admission.py`; `waiting.py` decides how
long a job waits for its admission, and `podgroup.py` has the objects of Volcano, coscheduling, Kubernetes and Kueue.
"""
