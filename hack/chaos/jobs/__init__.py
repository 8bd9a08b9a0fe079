"""Runs TFJobs, TrainJobs and gangs during faults while auditors watch: see `chaos.jobs.__main__`."""
