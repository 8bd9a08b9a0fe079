"""Local copies of API objects that follow the server: list, watch, store, handlers.

May import the shared modules of `kube` and `util`, and takes its transport as a `Requester`. Start reading with
`informer.py`, which shows how an event travels from the connection to a handler.
"""
