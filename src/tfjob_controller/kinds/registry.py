"""The kinds of jobs that the controller can run: the only list of them."""

from __future__ import annotations

from collections.abc import Sequence

from tfjob_controller.kinds.kindcontroller import Kind
from tfjob_controller.kinds.kubeflowtrainer.kind import KIND as KUBEFLOW_TRAINJOB
from tfjob_controller.kinds.kubeflowv1.kind import V1_JOB_KINDS
from tfjob_controller.kinds.tfjob.kind import KIND as TFJOB
from tfjob_controller.kinds.trainjob.kind import KIND as TRAINJOB

KINDS: Sequence[Kind] = (TFJOB, TRAINJOB, KUBEFLOW_TRAINJOB, *V1_JOB_KINDS)
