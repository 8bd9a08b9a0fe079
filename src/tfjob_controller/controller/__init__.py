"""The reconciler of jobs: from what the caches hold to the writes that a job needs, the same for all kinds.

It may import `jobs` (which decides), `api`, `httpserver`, `kube` and `util`.
Start with `reconciler.py` (one sync), then `kind.py` (what each kind supplies), `caches.py` (the table of
child kinds), `handlers.py` (which events queue a job), `writer.py` and `reporter.py` (writes, statuses, events).
"""
