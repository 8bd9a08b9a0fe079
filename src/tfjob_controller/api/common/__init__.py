"""What several kinds share: core objects, field descriptions and limits, quantities, pod templates, job status.

Nothing here depends on a job kind except the terms that all of them use. May import `kube`, `util`, and of `api` the
modules beside these folders (`gang`, `controllerconfig`).
Start with `schema.py`, which every kind uses to describe its fields.
"""
