"""How the pod of a replica ended, as its versions show it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from audit.jobs.facts import (
    all_statuses,
    deciding_statuses,
    is_disrupted,
    is_running,
    restart_attempt_of,
    terminations,
    training_statuses,
)
from audit.jobs.history import Moment, Object, ObjectRecord, is_being_deleted
from audit.objects import epoch_seconds

# The product takes a pod for lost 30 s after its grace period. Clocks may differ by some seconds.
_LOST_SECONDS = 25.0
_UNKNOWN = "ContainerStatusUnknown"


@dataclass(frozen=True, slots=True)
class End:
    """One end of a training container, when it was observed, and the restart attempt (0 without).

    `record` is the object that shows it: the pod, or the Job or the job that reports a success.
    """

    record: ObjectRecord
    moment: Moment
    attempt: int
    exit_code: int = 0
    reason: str = ""

    @property
    def is_permanent(self) -> bool:
        return 0 < self.exit_code < 128 or self.reason == "OOMKilled"


def ends_of(pod: ObjectRecord, *, include_late_reports: bool = False) -> Iterator[End]:
    """Yields the ends of the training container that count: not those of a pod that was stopped or lost.

    With `include_late_reports`, also ends that the kubelet reported only after the pod was deleted.
    """
    known: list[Object] = []
    # The kubelet deletes a pod that has ended once more: its last version has the time of that, without a grace period.
    going = next(filter(is_being_deleted, pod.versions), None)
    for version, moment in pod.moments():
        is_late = is_being_deleted(version)
        if is_disrupted(version) or (is_late and not include_late_reports):
            continue
        for ended in _training_ends(version):
            if ended not in known and (going is None or not is_late or _ended_before(going, ended)):
                known.append(ended)
                code, reason = int(ended["exitCode"]), str(ended.get("reason", ""))
                yield End(pod, moment, restart_attempt_of(version), code, reason)


def ended_on_request(pod: ObjectRecord) -> bool:
    """Reports whether the pod ended with 0, but only because it was deleted or evicted: this is no success."""
    codes = [int(ended["exitCode"]) for ended in _training_ends(pod.last)]
    return 0 in codes and all(end.exit_code for end in ends_of(pod, include_late_reports=True))


def failed_by_itself(pod: ObjectRecord) -> bool:
    """Reports whether a container, of whatever kind, ended with an error that no deletion or eviction accounts for.

    An end in the second of a deletion is in doubt, and counts.
    """
    for version in pod.versions:
        errors = [ended for ended in terminations(all_statuses(version), "state") if ended["exitCode"]]
        if not is_being_deleted(version):
            if errors and not is_disrupted(version):
                return True
        elif any(0 < epoch_seconds(ended.get("finishedAt")) <= _deletion_requested_at(version) for ended in errors):
            return True
    return False


def restarts_in_place(pod: ObjectRecord, until: float = float("inf")) -> int:
    """Returns how often training and init containers were restarted in their pod, as observed before that time."""
    counts = (
        sum(map(_restart_count, deciding_statuses(version))) for version, moment in pod.moments() if moment.at < until
    )
    return max(counts, default=0)


def is_lost_at(pod: ObjectRecord, at: float) -> bool:
    """Reports whether the pod should have ended well before that moment: its node is lost, and reports nothing."""
    deadlines = [version["metadata"].get("deletionTimestamp") for version, moment in pod.moments() if moment.at <= at]
    return bool(deadlines) and bool(deadlines[-1]) and epoch_seconds(deadlines[-1]) + _LOST_SECONDS <= at


def _training_ends(pod: Object) -> list[Object]:
    return terminations(training_statuses(pod), "lastState", "state")


def _ended_before(pod: Object, ended: Object) -> bool:
    """Reports whether the container ended before the pod was deleted, and not in the same second."""
    return 0 < epoch_seconds(ended.get("finishedAt")) < _deletion_requested_at(pod)


def _deletion_requested_at(pod: Object) -> float:
    meta = pod["metadata"]
    return epoch_seconds(meta["deletionTimestamp"]) - float(meta.get("deletionGracePeriodSeconds") or 0)


def _restart_count(container: Object) -> int:
    """Returns the kubelet's count without the one for a container that it cannot locate and has not started again."""
    last = terminations([container], "lastState")
    ended = terminations([container], "state")
    is_lost = bool(last) and last[0].get("reason") == _UNKNOWN and not is_running(container)
    is_over = bool(ended) and ended[0].get("reason") != _UNKNOWN
    return int(container.get("restartCount", 0)) - (is_lost and not is_over)
