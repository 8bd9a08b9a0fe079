"""TFJob `kubeflow.org/v1alpha1`: its fields, their defaults, its validation, and the patterns of its progress reports.

The CRD and docs/reference/tfjob.md are generated from `types.py`; its status from `status.py`.
May import `api/common` and the modules beside it.
Start with `types.py`.
"""
