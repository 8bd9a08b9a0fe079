"""Events about objects, as `kubectl describe` shows them.

May import the shared modules of `kube` and `util`, and takes its transport as a `Requester`. Start reading with
`recorder.py`; the rules for series, similar events and spam are in `correlator.py`, the turns of namespaces in
`pendingwrites.py`.
"""
