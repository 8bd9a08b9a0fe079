"""`make chaos-checkpoint`: kills of programs, sidecars, uploads, pods and nodes while TrainJobs save checkpoints.

May import localcluster and chaos. Start reading in __main__.py; what must hold is in auditor.py.
"""
