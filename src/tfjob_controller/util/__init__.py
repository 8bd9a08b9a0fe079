"""Tools without dependence on Kubernetes: clocks, backoff, supervised threads, and text that is safe to print.

Every other package may import this one; it imports none of them. Start reading with `clock.py`, since all time in the
product comes from a clock that tests can replace.
"""
