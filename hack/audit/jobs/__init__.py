"""Watches TFJobs and TrainJobs with all that belongs to them, from outside, and judges: see `audit.jobs.__main__`."""
