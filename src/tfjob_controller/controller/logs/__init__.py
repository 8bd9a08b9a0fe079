"""Reads the logs of training programs: metrics of TrainJobs, and steps of TFJobs that report them by a pattern.

Two threads that no sync waits for. It may import `kube`, `api`, `jobs` and `controller.handlers`.
Start with `follower.py` (one stream for each TrainJob), then `followedlog.py` (one stream) and `metricparser.py` (its
bytes); `progressreader.py` polls the ends of workers' logs.
"""
