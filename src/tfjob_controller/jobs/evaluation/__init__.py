"""The state of a job at one moment: its replicas, current step, gang, children of earlier attempts, and end.

`evaluate` determines all of this once per sync; `plan_actions` and `next_status` only read the result. This package may
import plans, states, gangs and scaling; it writes nothing and reads no clock. Start reading with `jobstate.py`;
`cleanup.py` decides what follows the end of a job.
"""
