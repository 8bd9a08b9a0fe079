"""The extender: the HTTP endpoints by which kube-scheduler asks for the node of a pod (`filter`) and binds it (`bind`).

kube-scheduler calls an extender in the course of its own scheduling of each pod. `server` receives the calls, `wire`
decodes and encodes their bodies, and `verbs` answers them: `filter` with the node that the gang scheduler assigned to
the pod, `bind` once all members of the gang have arrived (`permit`). It may import permit, state and bindrequests.
Start reading with verbs.py.
"""
