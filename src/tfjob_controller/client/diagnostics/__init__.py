"""Finds out why a job does not run, from what the cluster still has about it.

`collection` reads; `replicas`, `description`, `timeline` and `diagnosis` are pure. Replicas are judged by the functions
of `trainer` that the controller uses. Used by `client.job` and by the plugin's commands. May import `trainer`, `api`,
`kube` and the modules of `client` below `job`. Start with `diagnosis.diagnose`.
"""
