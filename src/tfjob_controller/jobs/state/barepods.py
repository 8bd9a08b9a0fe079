"""Shows a pod without a Job as a Job of its own.

The kinds of `kubeflow.org/v1` carry each replica by a pod and a Service that the job itself owns. Their names are those
of the replica. This module makes a Job of each such pod, `actions.children` builds them, and `actions.model.combined`
turns what is wanted of these Jobs into writes of pods. The rules between them are those of child Jobs; where upstream's
policies differ, they ask for `Role.restart_policy`, and where there is a Service to delete, for `Plan.carrier`.

No Job controller takes part, so a pod that has ended stays until this controller deletes it, and a pod is created as
soon as none of its name is left. What such a Job shows is therefore as old as the pod:

- It has ended (`Complete`, `Failed`) once the phase of its pod is final.
- It is suspended if its pod is being deleted for this controller: while the job is suspended, after its end, and if the
  pod was created before the job was resumed last. A pod that somebody else deletes belongs to a Job that runs.

Source: kubeflow/trainer release-1.9 pkg/controller.v1/common/pod.go (ReconcilePods).
"""

from __future__ import annotations

import dataclasses

from tfjob_controller.api.common.core import POD_FAILED, POD_SUCCEEDED, BatchJob, Condition, JobSpec, JobStatus, Pod
from tfjob_controller.jobs import conditions
from tfjob_controller.jobs.naming import REPLICA_RESTARTS
from tfjob_controller.jobs.plan.model import Plan
from tfjob_controller.jobs.state.observed import JOB_COMPLETE, JOB_FAILED, ObservedState
from tfjob_controller.jobs.trainingjob import PHASE_CLEAN_UP, TrainingStatus, is_finished
from tfjob_controller.kube.meta import ObjectMeta, controller_of

_OUTCOMES = {POD_SUCCEEDED: JOB_COMPLETE, POD_FAILED: JOB_FAILED}
_SUSPENDED = "Suspended"
# Users can write annotations of pods.
_DIGITS = 9


def by_pod(plan: Plan, observed: ObservedState, status: TrainingStatus) -> ObservedState:
    """Returns the state with a Job for each pod, if pods carry the replicas."""
    if plan.carrier is None:
        return observed
    jobs = {name: _job_of(plan, pods[0], status) for name, pods in observed.pods.items()}
    return dataclasses.replace(observed, jobs=jobs)


def _job_of(plan: Plan, pod: Pod, status: TrainingStatus) -> BatchJob:
    meta, owner = pod.metadata, controller_of(pod)
    restarts = meta.annotations.restarts[:_DIGITS]
    is_stopped = meta.deletion_timestamp is not None and _is_stopped_here(plan, pod, status)
    outcome = _SUSPENDED if is_stopped else _OUTCOMES.get(pod.status.phase, "")
    return BatchJob(
        ObjectMeta(
            name=meta.name,
            namespace=meta.namespace,
            # Pods belong to the Job that controls them.
            uid=owner.uid if owner is not None else "",
            resource_version=meta.resource_version,
            creation_timestamp=meta.creation_timestamp,
            # Among them are those of its gang.
            labels={**meta.labels, **({REPLICA_RESTARTS: restarts} if restarts else {})},
        ),
        JobSpec(suspend=is_stopped),
        JobStatus(conditions=(Condition(outcome, "True"),) if outcome else ()),
    )


def _is_stopped_here(plan: Plan, pod: Pod, status: TrainingStatus) -> bool:
    """Reports whether a pod is deleted because the job is, or was, suspended, or has ended."""
    if plan.policy.suspend or status.phase == PHASE_CLEAN_UP or is_finished(status):
        return True
    suspended = conditions.find(status.conditions, conditions.SUSPENDED)
    if suspended is None:
        return False
    return (
        suspended.status == conditions.TRUE or (pod.metadata.creation_timestamp or "") < suspended.last_transition_time
    )
