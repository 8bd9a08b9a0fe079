"""Jobs that another scheduler runs as a gang: Volcano, coscheduling, kube-scheduler's own PodGroup, or Kueue.

Pure. It may import `api`, `kube.meta` and the plan and state of a job.
Start with `backend.py` (what a scheduler has to supply), then `podgroup.py` (when a job has such an object, and what it
requests); `backends.py` has the four schedulers, `waiting.py` the condition of a job that waits.
"""
