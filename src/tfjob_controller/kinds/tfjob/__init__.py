"""TFJobs (kubeflow.org/v1alpha1). Start reading with `kind.py`."""

from tfjob_controller.api.tfjob.types import TFJOBS

RESOURCES = (TFJOBS,)
