"""What the processes of each framework need to find each other: `environment.py` for most, `mpi.py`, and a registry.

Pure: a framework reads the `Setting` of a job and nothing else. It may import `base.py` and the pod template functions
of `jobs.podtemplate.merge`, but neither plans nor `api`, `kube` or `controller`.
Start with `base.py`, the public contract: docs/trainjob-frameworks.md shows how a package adds a framework.
"""
