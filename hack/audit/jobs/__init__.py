"""Watches TFJobs, TrainJobs and their children from outside and reports violations: see `audit.jobs.__main__`."""
