"""What the replicas of a job are at one moment, by their Jobs and pods: running, ended, lost, to be restarted.

This package may import plans and the API's types; it writes nothing and reads no clock. Start reading with
`replica_state.py`, then `restarts.py` and `completion.py`.
"""
