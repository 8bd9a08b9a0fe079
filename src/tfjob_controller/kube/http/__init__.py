"""HTTP to the API server: connections, requests, retries and response streams.

May import `config`, the shared modules of `kube` and `util`. Nothing else in `kube` imports this folder: caches, queues
and clients take a `Requester`. Start reading with `transport.py`.
"""
