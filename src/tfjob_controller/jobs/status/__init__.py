"""Builds the next status of a job, and the events that follow from it.

This package may import plans and the state of a job; it decides nothing that actions depend on. Start reading with
`update.py`, which uses `summary.py` (phase, conditions, events) and `counts.py`.
"""
