"""The meaning of a job: its plan, its state at one moment, the writes that follow, and its status.

None of it does I/O or reads a clock: time is an argument. This package may import `kube`'s object types, `util`, and
of `api` all but the kinds of jobs. Start reading with `evaluation/jobstate.py`, then
`actions/planner.py` and `status/update.py`.
"""
