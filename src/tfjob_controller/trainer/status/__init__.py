"""What is said of a job: its next status, and the events that follow from it.

This package may import plans and the state of a job; it decides nothing that actions depend on. Start reading with
`update.py`; `summary.py` (also events) and `counts.py` fill in what it decides.
"""
