"""The progress of a job in steps, and the share of the remaining steps of a worker that starts now.

Theory of operation. A worker's program reports the steps that it has completed since its pod started: in an annotation
of the pod, or in its log (`autoscaling.progress.pattern`), which the controller reads, or which the kubelet copies into
the termination message of a container that failed. The status maps the UID of every pod, also of deleted ones, to the
highest number seen of it. Their sum is the progress: it never decreases, and survives pods and controllers. A report
that is no number, or lower than the one before, is ignored; the first ignored report is kept and reported once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain

from tfjob_controller.api.common.core import Pod
from tfjob_controller.api.common.policies import BY_RESTART
from tfjob_controller.api.common.schema import SAFE_INTEGER_MAX
from tfjob_controller.api.common.status import Progress
from tfjob_controller.jobs.naming import JOB_TYPE, replica_id_of
from tfjob_controller.jobs.plan.model import Plan, Role, StepPattern, StepShares
from tfjob_controller.jobs.state.observed import ObservedState, Reading
from tfjob_controller.jobs.state.pods import all_containers_ended, training_exit, was_started
from tfjob_controller.jobs.state.restarts import fold_counts
from tfjob_controller.jobs.trainingjob import TrainingStatus
from tfjob_controller.util.text import shortened

# The length of an invalid report in messages.
_MAX_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Report:
    """The report of one pod."""

    uid: str
    replica: str
    text: str


def next_progress(plan: Plan, observed: ObservedState, old: Progress | None) -> Progress:
    """Returns the progress with all current reports."""
    known = old or Progress()
    counts, ignored = dict(known.counts), known.ignored
    for report in _reports(plan, observed):
        steps = parse_steps(report.text)
        problem = _problem(report, steps, known.counts.get(report.uid, 0))
        if problem:
            ignored = ignored or problem
        elif steps is not None and steps > counts.get(report.uid, -1):
            counts[report.uid] = steps
    # The pods that may report again.
    present = {pod.metadata.uid for pod in _workers_of(plan.scaled_role, observed)}.union(observed.readings or ())
    counts = fold_counts(counts, present)
    return Progress(done=sum(counts.values()), total=plan.progress.total or 0, counts=counts, ignored=ignored)


def with_steps_per_worker(plan: Plan, total: int, observed: ObservedState, status: TrainingStatus) -> Plan:
    """Returns the plan with the number of steps, of `total`, for each worker that starts now."""
    left = max(0, total - next_progress(plan, observed, status.progress).done)
    members = status.scaling.members if plan.scaling.resize == BY_RESTART and status.scaling is not None else 0
    workers = sorted(
        replica.index
        for replica in plan.replicas.all
        if replica.role.name == plan.scaling.role
        and replica.id not in status.succeeded_indexes
        and (replica.index < members or not members)
    )
    share, rest = divmod(left, max(len(workers), 1))
    shares = {index: share + (place < rest) for place, index in enumerate(workers)}
    return replace(plan, progress=replace(plan.progress, shares=StepShares(total, shares)))


def is_unread(plan: Plan, observed: ObservedState) -> bool:
    """Reports whether a worker has ended whose log is not read to its end. False if logs are not read at all."""
    role, readings = plan.scaled_role, observed.readings
    if plan.progress.pattern is None or role is None or readings is None:
        return False
    return any(
        was_started(pod, role.container)
        and all_containers_ended(pod)
        and not readings.get(pod.metadata.uid, Reading()).is_last
        for pod in _workers_of(role, observed)
    )


def has_last_words(plan: Plan, observed: ObservedState, old: Progress | None, new: Progress | None) -> bool:
    """Reports whether there is a new number of a pod that may be deleted at any moment."""
    if new is None or new == old:
        return False
    before: Mapping[str, int] = old.counts if old is not None else {}
    changed = {uid for uid, steps in new.counts.items() if steps != before.get(uid)}
    staying = {
        pod.metadata.uid
        for pod in _workers_of(plan.scaled_role, observed)
        if pod.metadata.deletion_timestamp is None and not all_containers_ended(pod)
    }
    return not changed <= staying


def _workers_of(role: Role | None, observed: ObservedState) -> Iterator[Pod]:
    """Yields the pods of the scaled role, including those of workers that were scaled down."""
    pods = chain.from_iterable(observed.pods.values())
    return (pod for pod in pods if role is not None and pod.metadata.labels.get(JOB_TYPE) == role.replica_type)


def _reports(plan: Plan, observed: ObservedState) -> Iterator[Report]:
    role, pattern = plan.scaled_role, plan.progress.pattern
    for pod in _workers_of(role, observed):
        text = pod.metadata.annotations.steps or None
        if pattern is not None and role is not None:
            text = _match_at_end(pattern, pod, role.container)
        if text is not None:
            yield Report(pod.metadata.uid, replica_id_of(pod.metadata.labels), text)
    for uid, reading in (observed.readings or {}).items():
        if pattern is not None and reading.text:
            yield Report(uid, reading.replica, reading.text)


def _match_at_end(pattern: StepPattern, pod: Pod, container: str) -> str | None:
    """Returns the match in the termination message, which is the end of the log if the container failed."""
    ended = training_exit(pod, container)
    return pattern.last_match(ended.message) if ended is not None and ended.message else None


def parse_steps(text: str) -> int | None:
    """Returns the number of steps; None if the text is no valid number."""
    number = text.strip()
    if not (number.isascii() and number.isdecimal()) or len(number) > len(str(SAFE_INTEGER_MAX)):
        return None
    return int(number) if int(number) <= SAFE_INTEGER_MAX else None


def _problem(report: Report, steps: int | None, before: int) -> str:
    if steps is None:
        return f"{report.replica} reported {shortened(report.text)[:_MAX_SHOWN]!r}, which is not a number of steps"
    if steps < before:
        return f"{report.replica} went back from {before} to {steps} steps"
    return ""
