"""TrainJob, TrainingRuntime and ClusterTrainingRuntime `kubeflow.org/v2alpha1`: types, defaults, validation.

The CRDs and the pages in docs/reference are generated from `types.py`, `runtime.py` and
`api/common/storage.py`. May import `api/common` and the modules beside it.
Start with `types.py`.
"""
