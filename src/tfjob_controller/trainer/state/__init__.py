"""What a job is at one moment: its replicas, the step that is due, its gang, its children of earlier attempts, its end.

`evaluate` judges all of that once per sync; `plan_actions` and `next_status` only read the answer. This package may
import plans and the API's types; it writes nothing and knows no clock. Start reading with `evaluation.py`.
"""
