"""What a job that runs as a gang requests, of this project's gang scheduler or of another one, and what it may create.

This package may import plans and the state of replicas. Start reading with `admission.py`; `waiting.py` decides how
long a job waits for its admission, and `podgroup.py` has the objects of Volcano, coscheduling, Kubernetes and Kueue.
"""
