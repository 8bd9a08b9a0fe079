"""Work queues of a controller: deduplication, priorities, delays, rate limits and metrics.

May import the shared modules of `kube` and `util`; it sends no requests. Start reading with `queue.py`.
"""
