"""The frameworks: variables, files and pods by which the processes of a job find each other.

`environment.py` has most frameworks, `mpi.py` the one that needs more, and `registry.py` their list.
Pure: a framework reads the `Setting` of a job and nothing else. It may import `base.py` and the pod template functions
of `jobs.podtemplate.merge`, but neither plans nor `api`, `kube` or `controller`.
Start with `base.py`, the public contract: docs/trainjob-frameworks.md shows how a package adds a framework.
"""
