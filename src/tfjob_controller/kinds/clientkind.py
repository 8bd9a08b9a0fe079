"""A kind of job as its users see it: what the Python client, the plugin and the dashboard know of it.

A job of the kind is a value with `metadata`, and with the attributes of `client.kinds.AnyJob`. The module imports
little, since a plugin starts for each command; its functions import what they need. They take a job of this kind, and
all but `preview_of` are pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfjob_controller.jobs.naming import OPERATOR_NAME_LABEL, job_labels, name_value, selector_string
from tfjob_controller.kube.meta import Resource

if TYPE_CHECKING:
    from tfjob_controller.jobs.plan.model import Plan
    from tfjob_controller.jobs.trainingjob import TrainingJob
    from tfjob_controller.kinds.kindform import KindForm
    from tfjob_controller.kube.requester import Requester


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientKind:
    """See the module."""

    resource: Resource[Any]
    type: type[Any]
    succeeded: str
    """The condition of success."""
    name_label: str
    """The label of children that has the name of the job."""
    operator_name: str = ""
    """The label by which the pods of this kind are found, if the job itself owns them; empty if child Jobs do."""
    suspend_field: Sequence[str] = ("suspend",)
    """The path below the spec of the field that suspends a job."""
    member: str
    """What `scale` counts: workers, or nodes."""
    has_members: Callable[[Any], bool] = lambda job: True
    """Whether a job has what `scale` counts."""
    size_field_of: Callable[[Any], Sequence[str]]
    """The path below the spec of the field that `scale` sets."""
    size_violation: Callable[[Any, int], str]
    """Why that field of a job cannot have a value, for the end of a sentence; empty for a value that it can have."""
    has_scale_right: bool = False
    """Whether `scale` uses the scale subresource, so that the right to write it suffices."""
    keeps_pods: str = ""
    """The setting by which the pods of an ended job stay; empty if there is none."""
    runtime_id_of: Callable[[Any], str]
    """The id in the names of the children; empty before there are any."""
    work_of: Callable[[Any], TrainingJob]
    problem_of: Callable[[Any], str | None]
    """The first error of the spec, with the API server's message; None for a valid spec."""
    plan_of: Callable[[Any], Plan | None]
    """The replicas of a valid job, as far as its object tells; None before it has started."""
    preview_of: Callable[[Any, Requester], Plan | None]
    """The plan that the controller would make of a new, valid job.

    None if it depends on what the user may not read, or on a framework that only the controller has. Raises
    `UnplannableError`, and `ApiError` if the server does not respond.
    """
    preview_without_runtime_of: Callable[[Any, Requester], Plan | None] = lambda job, requester: None
    """The plan of a new, valid job whose runtime the user may not read, as if that added nothing.

    None if nothing can be said without the runtime. Raises `UnplannableError`.
    """
    restart_limit_of: Callable[[Any], int | None]
    accelerators_of: Callable[[Any], int]
    """The GPUs and other devices of all replicas, as far as the spec names them; it may leave that to a runtime."""
    ready_of: Callable[[Any], Mapping[str, str]]
    """By role, as `3/4`: the roles that a table of jobs shows."""
    ends_with_chief: Callable[[Any], bool]
    """Whether the job ends when its chief does; otherwise, when all of its nodes or workers have ended."""
    size_of: Callable[[Any], str] = lambda job: ""
    """The current size of a job that is resized, with its bounds and target; otherwise empty."""
    progress_of: Callable[[Any], str]
    """As the job reports it; empty if it does not."""
    percentage_of: Callable[[Any], int | None]
    """From 0 to 100, if the job states the total number of steps."""
    metrics_of: Callable[[Any], Mapping[str, str]] = lambda job: {}
    """The last value of each metric in the status."""
    logged_metrics_of: Callable[[Any], Sequence[str]]
    """The names of the metrics that are read from the chief's log."""
    form: Callable[[], KindForm] | None = None
    """The kind in the dashboard's form for a new job; None if the form does not offer it."""

    @property
    def owns_pods(self) -> bool:
        """Whether its jobs own their pods, without child Jobs between them."""
        return bool(self.operator_name)

    @property
    def word(self) -> str:
        """Its name in commands, in the singular."""
        return self.resource.kind.lower()

    def child_selector(self, job: Any) -> str:
        """The label selector of the children of a job; empty before there are any."""
        name, runtime_id = job.metadata.name, self.runtime_id_of(job)
        if self.operator_name:
            return selector_string({OPERATOR_NAME_LABEL: self.operator_name, self.name_label: name_value(name)})
        return selector_string(job_labels(name, runtime_id, self.name_label)) if runtime_id else ""

    def pod_selector(self, name: str) -> str:
        """The label selector of the pods of all jobs that had this name."""
        operator = {OPERATOR_NAME_LABEL: self.operator_name} if self.operator_name else {}
        return selector_string({**operator, self.name_label: name_value(name)})
