"""A Kubernetes client for controllers, after client-go: requests, caches, work queues, events and leader election.

It knows no kind of this project and may import `util` only. The modules here are shared by the folders: objects
(`meta.py`), JSON (`codec.py`), errors, rate limits, and the `Requester` that everything above HTTP is written against.
Start reading with `requester.py`, then `http/transport.py` for requests and `cache/informer.py` for caches.
"""
