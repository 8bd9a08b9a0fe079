"""Why does a job not run? What the cluster still knows of a job, and what follows from it.

`collection` reads; `replicas`, `description`, `timeline` and `diagnosis` are pure. Replicas are judged by the functions
of `trainer` that the controller uses. Used by `client.job` and by the plugin's commands. May import `trainer`, `api`,
`kube` and the modules of `client` below `job`. Start with `diagnosis.diagnose`.
"""
