"""Kubeflow Trainer's own TrainJobs (trainer.kubeflow.org). Start reading with `kind.py`."""
