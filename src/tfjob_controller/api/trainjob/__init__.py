"""TrainJob, TrainingRuntime and ClusterTrainingRuntime `kubeflow.org/v2alpha1`: types, defaults, validation, status.

The CRDs and the pages in docs/reference are generated from `types.py`, `runtime.py`, `storage.py` and `status.py`.
May import `api/common` and the modules beside it.
Start with `types.py`.
"""
