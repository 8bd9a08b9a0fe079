"""Scheduling rules: node capacity, queue order, admission, placement and autoscaling of gangs.

Everything here is pure: the time is an argument, and nothing performs I/O. The gang scheduler and the simulator run
the same code. The package may import `api`, `kube.meta` and `util`, and knows neither of its callers.
Start with `decisions.py` (which gangs are admitted), then `clusterview.py` (what nodes have left) and `placement.py`.
"""
