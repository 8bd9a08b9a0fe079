"""What jobs of every kind say of themselves as gangs: the fields that mean the same in all of them."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from tfjob_controller.api.describe import INT32_MAX, says
from tfjob_controller.api.gang import ON_TIMEOUT

TimeoutSeconds: TypeAlias = Annotated[
    int | None,
    says(
        "Seconds that the job may wait for room before onTimeout applies. Default: no limit.",
        format="int32",
        minimum=1,
        maximum=INT32_MAX,
    ),
]
OnTimeout: TypeAlias = Annotated[
    str,
    says(
        "What becomes of a job that has waited for timeoutSeconds: Wait (it says so and waits on), Fail, or "
        "Suspend (spec.suspend is set). Default: Wait.",
        enum=list(ON_TIMEOUT),
    ),
]
Priority: TypeAlias = Annotated[
    int | None,
    says("Jobs of a higher one get room first. Usually the value of the PriorityClass. Default: 0.", format="int32"),
]
