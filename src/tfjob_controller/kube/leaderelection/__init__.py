"""Leader election with a Lease.

May import the shared modules of `kube` and `util`, and takes its transport as a `Requester`. Start reading with
`lease.py`, which explains why no two processes lead at the same time.
"""
