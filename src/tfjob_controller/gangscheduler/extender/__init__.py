"""kube-scheduler's extender protocol: HTTP server, the wire format, and the verbs filter and bind.

It may import permit, state and bindrequests. Start reading with verbs.py.
"""
