"""A real Kubernetes control plane, and on request real nodes, on one Linux machine. `python -m localcluster --help`.

For code: `localcluster.controlplane.ControlPlane` and `localcluster.binaries.ensure`, whose docstrings say how.
"""
