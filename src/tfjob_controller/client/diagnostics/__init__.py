"""Finds out why a job does not run, from what the cluster still has about it.

`collection` reads; `replicas`, `description`, `timeline` and `diagnosis` are pure. Replicas are judged by the functions
of `jobs` that the controller uses. Used by `client.job`, the plugin and the dashboard. May import `jobs`, `api`, `kube`
and the modules of `client` that `client.job` imports. Start with `diagnosis.diagnose`.
"""
