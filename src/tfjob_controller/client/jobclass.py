"""The class of a job: what has to be done about it, and by whom. Pure.

It follows from the status alone, so that a list of many jobs needs no request for each: from the phase, the conditions
and their reasons, and the code in the reason of a job that waits, such as `worker-0: ImagePullBackOff: …`. A job of
`kubeflow.org/v1` has no such reason in its status, so it takes one of its pods to tell that it needs somebody
(`verdict_of_reason`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum

from tfjob_controller.client.kinds import AnyJob
from tfjob_controller.jobs import conditions, reasons
from tfjob_controller.jobs.conditions import FALSE
from tfjob_controller.jobs.state.podreasons import CANNOT_START, CRASH_LOOP, RESTARTED_IN_PLACE


class JobClass(StrEnum):
    """The words that people read, in the order in which they are to look at the jobs."""

    NEEDS_YOU = "Needs you"
    QUEUED = "Queued"
    STARTING = "Starting"
    RUNNING = "Running"
    SUSPENDED = "Suspended"
    FAILED = "Failed"
    DONE = "Done"

    @property
    def slug(self) -> str:
        """In addresses, flags and names of style classes: `needs-you`."""
        return self.value.lower().replace(" ", "-")


BY_SLUG = {job_class.slug: job_class for job_class in JobClass}

# Codes of kubelets and controllers. Each is tried again, and somebody has to correct something.
BAD_IMAGE = frozenset({"ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull"})
BAD_CONFIG = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})
NOT_SET_UP = frozenset({"FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox"})
# What the code in the reason of a job means, in words for a list.
_CAUSES: Mapping[str, str] = {
    **dict.fromkeys(
        (*BAD_IMAGE, "ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed"), "Broken image"
    ),
    **dict.fromkeys((*BAD_CONFIG, CANNOT_START), "Container cannot start"),
    # A Secret or ConfigMap that does not exist.
    "CreateContainerConfigError": "Missing configuration",
    **dict.fromkeys(NOT_SET_UP, "Volume or network"),
    CRASH_LOOP: "Crash loop",
    # Of a child Job whose pod is refused: a quota, Pod Security, a ServiceAccount that does not exist.
    reasons.FAILED_CREATE: "Pods are refused",
    "NodeNotReady": "Stalled",
}
# Of a pod without a node, which waits for capacity.
_UNSCHEDULED_CODES = frozenset({"Unschedulable", "SchedulingGated", "FailedScheduling"})
# kube-scheduler has one code for all of its causes. This one, a volume that does not exist, is no lack of capacity.
MISSING_OBJECT = re.compile(r'(persistentvolumeclaim|configmap|secret) "([a-z0-9.-]+)" not found')
# Nor is this one: the nodeSelector or the node affinity of the pod names what no node has.
_NO_NODE_MATCHES = re.compile(
    r"0/([0-9]+) nodes are available: \1 node\(s\) didn't match Pod's node (?:affinity/selector|affinity|selector)\b"
)
_CODE = re.compile(rf"[a-z0-9-]+: ({CANNOT_START}|[A-Z][A-Za-z]+)(?:: | \(and \d+ more wait\)$|$)")
# The API server refuses a child (`controller.outcome`).
_REFUSED = "cannot "
# A program that has failed so often by itself, and does not run now, is in a crash loop. One that fails once or twice
# recovers by its restarts.
LOOP_FAILURES = 3


def class_of(job: AnyJob) -> JobClass:
    """The class of a job of any kind, from its last status."""
    return verdict_of(job)[0]


def verdict_of(job: AnyJob) -> tuple[JobClass, str]:
    """The class of a job of any kind, and of one that needs somebody what is wrong, in a few words.

    A job in a crash loop needs somebody only while a replica waits to run again, after at least `LOOP_FAILURES`
    restarts that were no disruptions: while its program runs, the job runs.
    """
    status = job.status
    if conditions.has_true(tuple(status.conditions), conditions.FAILED):
        return JobClass.FAILED, ""
    if status.summary in _SETTLED:
        return _SETTLED[status.summary], ""
    if not status.phase:
        return JobClass.STARTING, ""
    if cause := _cause(job):
        return JobClass.NEEDS_YOU, cause
    if status.summary == conditions.RUNNING:
        return JobClass.RUNNING, ""
    return (JobClass.QUEUED if _waits_for_capacity(job) else JobClass.STARTING), ""


def verdict_of_reason(reason: str) -> tuple[JobClass, str]:
    """The class of a job of which only is known why one of its pods waits, in the words of a job's reason."""
    if cause := _cause_of_reason(reason):
        return JobClass.NEEDS_YOU, cause
    return (JobClass.QUEUED if code_of(reason) in _UNSCHEDULED_CODES else JobClass.STARTING), ""


# What decides by itself.
_SETTLED = {
    conditions.SUCCEEDED: JobClass.DONE,
    conditions.FAILED: JobClass.FAILED,
    conditions.SUSPENDED: JobClass.SUSPENDED,
}


def code_of(reason: str) -> str:
    """The code in the reason of a job, such as `worker-0: ImagePullBackOff: …`; empty if it has none."""
    match = _CODE.match(reason)
    return match[1] if match is not None else ""


def _cause(job: AnyJob) -> str:
    """What somebody has to correct, in a few words; empty if nobody has to do anything."""
    status = job.status
    if _scheduled_reason(job) == reasons.EXCEEDS_CLUSTER_CAPACITY:
        return "Larger than the cluster"
    if conditions.has_true(tuple(status.conditions), conditions.CHANGES_REVERTED):
        return "Changes are reverted"
    if status.reason.startswith(_REFUSED):
        return "Refused"
    return _cause_of_reason(status.reason) or ("Crash loop" if _is_in_crash_loop(job) else "")


def _cause_of_reason(reason: str) -> str:
    code = code_of(reason)
    if code in _UNSCHEDULED_CODES and MISSING_OBJECT.search(reason):
        return "Missing volume"
    if code in _UNSCHEDULED_CODES and _NO_NODE_MATCHES.search(reason):
        return "No node matches"
    return _CAUSES.get(code, "")


def _is_in_crash_loop(job: AnyJob) -> bool:
    status = job.status
    failures = status.restarts - status.disruptions
    if failures >= LOOP_FAILURES:
        return conditions.has_true(tuple(status.conditions), conditions.RESTARTING)
    # An init container: its failures are no restarts of the replica.
    return failures == 0 and RESTARTED_IN_PLACE in status.reason


def _waits_for_capacity(job: AnyJob) -> bool:
    reason = _scheduled_reason(job)
    is_gang = reason not in ("", reasons.GANG_SCHEDULING_OFF, reasons.NOT_WAITING)
    return is_gang or code_of(job.status.reason) in _UNSCHEDULED_CODES


def _scheduled_reason(job: AnyJob) -> str:
    """Why the job's gang is not scheduled; empty if it is, or if the job runs as no gang."""
    scheduled = conditions.find(tuple(job.status.conditions), conditions.SCHEDULED)
    return scheduled.reason if scheduled is not None and scheduled.status == FALSE else ""
