"""TrainJob and its runtimes as Kubeflow Trainer defines them: `trainer.kubeflow.org/v1alpha1`.

`types` has the jobs, `runtime` the runtimes, `patches` what a job changes of its runtime, and `validation` the rules.
The CRDs are upstream's, so nothing is generated from these types. The package imports `api.common`, `api.decode` and
`kube.meta`. Start with `types`.
"""
