"""TrainJobs (kubeflow.org/v2alpha1) and their runtimes. Start reading with `kind.py`."""

from tfjob_controller.api.trainjob.types import TRAINJOBS

RESOURCES = (TRAINJOBS,)
