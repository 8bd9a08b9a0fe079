"""TrainJob and its runtimes as Kubeflow Trainer defines them: `trainer.kubeflow.org/v1alpha1`.

For what stores and shows these kinds, see `types` (the jobs), `runtime` (the runtimes) and `validation`. It imports
what all kinds of `api` share. The CRDs are upstream's; nothing is generated from these types. Start with `types`.
"""
