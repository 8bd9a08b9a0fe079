"""What the pods of jobs use now: CPU and memory from metrics-server, GPUs from a Prometheus.

Both are optional. A cluster without metrics-server, and a user who may not read its API, get no figures and no error.
"""
