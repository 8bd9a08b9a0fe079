"""Permit, named after kube-scheduler's Permit phase: bind calls wait until all members of their gang have called.

`machine` holds the rules (pure) and `permit` runs them with a lock, a thread and a clock. It may import state and
bindrequests. Start reading with the docstring of machine.py.
"""
