"""Jobs that another scheduler runs as a gang: Volcano, coscheduling, kube-scheduler's own PodGroup, or Kueue.

Pure. It may import `api`, `kube.meta` and the plan and state of a job.
Start with `backends.py` (what a scheduler has to supply, and the four schedulers), then `podgroup.py` (when a job has
such an object, and what it requests).
"""
