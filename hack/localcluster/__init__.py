"""A real Kubernetes control plane, and on request real nodes, on one Linux machine. `python -m localcluster --help`.

Code uses `localcluster.controlplane.ControlPlane` and `localcluster.binaries.ensure`; their docstrings describe how.
"""
