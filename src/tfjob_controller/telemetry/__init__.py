"""Metrics for Prometheus, structured logs, and the endpoints of probes, metrics and debug pages.

The package may import `api`, `jobs` and what is below them; other packages know it through small Protocols of
their own, which the composition roots in `programs` connect. Start reading with `metrics.py`; `jobmetrics.py` has the
series of jobs, `gangmetrics.py` those of the gang scheduler.
"""
