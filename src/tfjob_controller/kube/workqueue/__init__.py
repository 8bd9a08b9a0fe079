"""Work queues of a controller: deduplication, priorities, delays, rate limits and metrics.

May import the shared modules of `kube` and `util`; it sends no requests. Start reading with `queue.py`, then
`ratelimiting.py`, whose queue is the one that controllers use.
"""
