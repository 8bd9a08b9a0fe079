"""Kubeflow Trainer's own TrainJobs (trainer.kubeflow.org). Start reading with `kind.py`."""

from tfjob_controller.api.kubeflowtrainer.types import KUBEFLOW_TRAINJOBS

RESOURCES = (KUBEFLOW_TRAINJOBS,)
