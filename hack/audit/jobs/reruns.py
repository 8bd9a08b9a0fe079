"""Replicas that ran again after they had succeeded. Pure.

A **rerun** is a pod that was created for a replica after that replica had succeeded: its training container had exited
with 0, its child Job was complete, or the job's status listed it as succeeded. A training container that exits with 0
and is started again in the same pod is one, too. A Job that is complete because its pod was deleted, and exited with 0
for that reason, is no success. A rerun is allowed for

- a parameter server of a TFJob, which is restarted until the chief has ended;
- a node or launcher of a TrainJob that was restarted with all its peers since: the pod has a higher restart attempt
  (label `kubeflow.org/generation`) than the one that succeeded;
- a success of which no record existed any more. The records are the pod and the complete Job until each is deleted. If
  a user, or the Job controller for a suspension, deleted both before the status listed the replica, nothing shows the
  success. The controller has `reaction_seconds` to write the status, which start again with each outage. A Job that the
  controller itself deletes (in the foreground, unlike the users of `make chaos`) stays a record: the controller must
  check it before the deletion.

A resume or a resize allows no rerun: replicas that have succeeded do not run again. A pod whose creation was missed
because of a gap in a watch is not judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from audit.jobs.ends import End, ended_on_request, ends_of
from audit.jobs.facts import (
    is_elastic,
    is_running,
    replica_of,
    restart_attempt_of,
    restarts_of,
    status_of,
    succeeded_replicas,
    training_statuses,
)
from audit.jobs.family import Family, controller_uid
from audit.jobs.history import JOBS, NEVER, OWNERS, PODS, Moment, Object, ObjectRecord, is_being_deleted
from tfjob_controller.api.gang import kind_of

_CONTROLLER_FINALIZER = "foregroundDeletion"


def reruns(family: Family, outages: Sequence[float], reaction_seconds: float) -> Iterator[str]:
    """Yields pods that are reruns (see the module). `outages` are the times of outages."""
    known = _successes(family)
    for replica, pods in family.pods.items():
        if family.is_tfjob and kind_of(replica) == "ps":
            continue
        for pod in (pod for pod in pods if pod.is_begin_seen):
            earlier = [success for success in known.get(replica, ()) if _is_rerun(family, pod, success)]
            if any(_could_be_known(family, pod, success, outages, reaction_seconds) for success in earlier):
                yield f"{pod} was created after {replica} of {family.job} had succeeded"
            if _runs_again_in_place(pod):
                yield f"{pod} runs {replica} of {family.job} again, which had succeeded in it"


def _successes(family: Family) -> dict[str, list[End]]:
    """Returns the successes of each replica by all records of them: pods, Jobs and the status of the job."""
    stopped = {(controller_uid(pod), replica_of(pod.last)) for pod in family.of(PODS) if ended_on_request(pod)}
    known = {
        replica: [end for end in ends if (end.record.uid, replica) not in stopped]
        for replica, ends in family.successes().items()
    }
    reported: set[tuple[str, int]] = set()
    for version, moment in family.job.moments():
        attempt = 0 if family.is_tfjob else _attempt(version)
        for replica in succeeded_replicas(version):
            if (replica, attempt) not in reported:
                reported.add((replica, attempt))
                known.setdefault(replica, []).append(End(family.job, moment, attempt))
    return known


def _attempt(job: Object) -> int:
    """Returns how often all nodes of a TrainJob were restarted together."""
    return int((status_of(job).get("scaling") or {}).get("attempt", 0)) if is_elastic(job) else restarts_of(job)


def _is_rerun(family: Family, pod: ObjectRecord, success: End) -> bool:
    if pod.begin <= success.moment.version or pod is success.record:
        return False
    return family.is_tfjob or restart_attempt_of(pod.last) <= success.attempt


def _could_be_known(
    family: Family, pod: ObjectRecord, success: End, outages: Sequence[float], reaction_seconds: float
) -> bool:
    """Reports whether a record existed when the Job of `pod` was created, or for longer than the reaction time."""
    until = _recorded_until(success.record)
    job = family.job_of(pod)
    is_successor = job is not None and job.begin > success.moment.version
    if until.version > (job.begin if job is not None and is_successor else pod.begin):
        return True
    since = max([success.moment.at, *(at for at in outages if at < until.at)])
    return until.at - since > reaction_seconds


def _recorded_until(record: ObjectRecord) -> Moment:
    """Returns when the deletion of a record began; never for one that the controller deletes, and for a status."""
    going = next(filter(is_being_deleted, record.versions), None)
    is_by_the_controller = going is not None and _CONTROLLER_FINALIZER in (going["metadata"].get("finalizers") or ())
    return NEVER if record.kind in OWNERS or (record.kind == JOBS and is_by_the_controller) else record.deletion


def _runs_again_in_place(pod: ObjectRecord) -> bool:
    succeeded = min((end.moment for end in ends_of(pod) if end.exit_code == 0), default=NEVER)
    return any(
        any(map(is_running, training_statuses(version))) for version, moment in pod.moments() if moment >= succeeded
    )
