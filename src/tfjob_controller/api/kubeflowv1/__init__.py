"""The jobs of Kubeflow's training-operator as data: the six kinds of `kubeflow.org/v1`.

`types` has the jobs and a table of what differs between their kinds, `defaults` the meaning of absent fields, and
`validation` the rules of upstream's webhooks. The package imports `api.common`, `api.decode` and `kube`. Start with
`types`.
"""
