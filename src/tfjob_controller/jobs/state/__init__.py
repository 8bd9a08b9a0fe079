"""The states of a job's replicas at one moment, from their Jobs and pods: running, ended, lost, to be restarted.

This package may import plans and the API's types; it writes nothing and reads no clock. Start reading with
`replica_state.py`, then `restarts.py` and `completion.py`.
"""
