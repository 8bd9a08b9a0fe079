"""TFJobs, TrainJobs and gangs while everything breaks, with auditors that watch: see `chaos.jobs.__main__`."""
