"""The condition Scheduled of a job that another scheduler runs as a gang.

The job is scheduled once the replicas that must run together have a node, and stays so until none has one: a single
replica that is restarted does not make the gang wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from tfjob_controller.api.common.core import Pod
from tfjob_controller.api.common.status import TrainingStatus
from tfjob_controller.trainer import conditions, reasons
from tfjob_controller.trainer.gang.terms import PodGroupTerms
from tfjob_controller.trainer.gang.waiting import GangWait, wait_with_timeout
from tfjob_controller.trainer.plan.model import Plan
from tfjob_controller.trainer.podgroup.podgroup import min_counts
from tfjob_controller.trainer.state import replica_state
from tfjob_controller.trainer.state.completion import Step
from tfjob_controller.trainer.state.replica_state import ReplicaState

_SCHEDULED = "All replicas that must run together have a node"


def pod_group_wait(plan: Plan, step: Step, status: TrainingStatus, now: datetime) -> GangWait | None:
    """None for a job that no other scheduler runs as a gang, and in steps that are not part of the gang."""
    terms = plan.scheduling.pod_group
    if terms is None or (step.plan.scheduling.pod_group is None and not plan.policy.is_held):
        return None
    placed = sum(_has_node(view) for view in step.replica_states)
    least = sum(min_counts(terms.terms, {}).values())
    said = conditions.find(status.conditions, conditions.SCHEDULED)
    was_scheduled = said is not None and said.reason == reasons.GANG_SCHEDULED
    if not plan.policy.is_held and placed >= (1 if was_scheduled else least):
        return GangWait(True, reasons.GANG_SCHEDULED, _SCHEDULED)
    words = _words(terms, step)
    if not words:
        name = f"{terms.backend.resource.kind} {terms.terms.name}"
        message = f"{name} has no word of its scheduler yet: does it run?"
        return wait_with_timeout(terms.terms, reasons.WAITING_FOR_SCHEDULER, message, status, now)
    return wait_with_timeout(terms.terms, reasons.WAITING_FOR_CAPACITY, words, status, now)


def _words(terms: PodGroupTerms, step: Step) -> str:
    """The scheduler's messages for the gang, and for its first pod with another message."""
    group = step.observed.pod_group
    of_group = terms.backend.pending_message(group) if group is not None else ""
    of_pods = (words for view in step.replica_states if (words := _unscheduled(view.pods)))
    # The group may repeat the message of one of its pods.
    of_pod = next((words for words in of_pods if words not in of_group), "")
    return "; ".join(each for each in (of_group, of_pod) if each)


def _has_node(view: ReplicaState) -> bool:
    return view.state == replica_state.SUCCEEDED or any(pod.spec.node_name for pod in view.pods)


def _unscheduled(pods: Sequence[Pod]) -> str:
    found = (each for pod in pods for each in pod.status.conditions if each.type == "PodScheduled")
    return next((each.message for each in found if each.status == "False"), "")
