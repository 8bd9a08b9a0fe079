"""What must not run, by what containers did and not by the phases of pods. Pure.

Kubelets report starts and ends in whole seconds, so two that are in the same second have no order and break no rule.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from audit.jobs.facts import (
    Replica,
    all_statuses,
    controller_of,
    deciding_statuses,
    epoch_seconds,
    families,
    has_ended,
    is_finished,
    is_lost_at,
    is_managed,
    pods_of,
)
from audit.jobs.history import PODS, History, ObjectRecord, version_of

_NEVER = float("inf")


def overlapping_containers(history: History) -> Iterator[str]:
    """Yields two pods of one replica that had running containers at the same time, unless a node was lost.

    A Job controller whose create request got no response may create a surplus pod beside one that nobody has deleted.
    """
    groups: dict[Replica, list[ObjectRecord]] = {}
    for replica, pod in pods_of(history):
        if starts_of(pod):
            groups.setdefault(replica, []).append(pod)
    for replica, same in groups.items():
        for first, second in itertools.combinations(sorted(same, key=_began), 2):
            if second.begin > _reported_end(first) or _is_surplus(first, second) or is_lost_at(first, second.times[0]):
                continue
            until = ran_until(first)
            seconds = (until if until == _NEVER else int(until)) - _began(second)
            if seconds > 0:
                yield f"{second} ran {replica.id} while containers of {first} still ran, for {seconds:g} s"


def starts_after_the_end(history: History) -> Iterator[str]:
    """Yields pods that were created, and containers that started, after the status reported the end of their job.

    With `cleanPodPolicy: None`, kubelets may start a container again in its pod: a sidecar, or one whose pod is then
    stopped, because nothing can prevent the first such restart.
    """
    for family in families(history):
        job = family.job
        finished = (
            (version_of(each), at) for each, at in zip(job.versions, job.times, strict=True) if is_finished(each)
        )
        version, ended_at = next(finished, (0, 0.0))
        if not version or not is_managed(job.last):
            continue
        for pod in family.of(PODS):
            if pod.begin > version and pod.is_begin_seen:
                yield f"{pod} was created after {job} had finished"
            for name, at in sorted(starts_of(pod)):
                if at > ended_at and not _is_kept(pod, name, ended_at):
                    yield f"container {name} of {pod} started {at - ended_at:.1f} s after {job} had finished"


def starts_of(pod: ObjectRecord) -> set[tuple[str, float]]:
    """Returns name and time of each observed start of a container, init containers and sidecars included."""
    found = set()
    for version in pod.versions:
        for status in all_statuses(version):
            for state in (status.get("state") or {}, status.get("lastState") or {}):
                began = (state.get("running") or state.get("terminated") or {}).get("startedAt")
                # A container that could not start has the time 0.
                if epoch_seconds(began) > 0:
                    found.add((str(status["name"]), epoch_seconds(began)))
    return found


def ran_until(pod: ObjectRecord) -> float:
    """Returns when the last container of the pod had ended; infinite if one still runs.

    An end without a time counts when it was observed, as do containers that are not reported to have ended when the pod
    is deleted.
    """
    until = 0.0
    for version, at in zip(pod.versions, pod.times, strict=True):
        states = [status.get("state") or {} for status in all_statuses(version)]
        if any("running" in state for state in states):
            until = _NEVER
            continue
        ends = [each["terminated"] for each in states if "terminated" in each]
        if until == _NEVER:
            until = max([epoch_seconds(each.get("finishedAt")) or at for each in ends], default=at)
        else:
            until = max([until, *(epoch_seconds(each.get("finishedAt")) for each in ends)])
    return pod.ended_at if until == _NEVER and pod.ended is not None else until


def _is_kept(pod: ObjectRecord, name: str, ended_at: float) -> bool:
    """Reports whether the container had run before that time, and its pod is stopped or the container is a sidecar."""
    is_stopped = pod.ended is not None or bool(pod.last["metadata"].get("deletionTimestamp")) or has_ended(pod.last)
    decides = name in {each["name"] for each in deciding_statuses(pod.last)}
    return (is_stopped or not decides) and any(known == name and at <= ended_at for known, at in starts_of(pod))


def _reported_end(pod: ObjectRecord) -> float:
    """Returns the version from which on no container of the pod is reported to run."""
    running = [
        any("running" in (each.get("state") or {}) for each in all_statuses(version)) for version in pod.versions
    ]
    last = max((number for number, is_running in enumerate(running) if is_running), default=-1)
    return version_of(pod.versions[last + 1]) if last + 1 < len(pod.versions) else pod.end


def _began(pod: ObjectRecord) -> float:
    return min(at for _, at in starts_of(pod))


def _is_surplus(first: ObjectRecord, second: ObjectRecord) -> bool:
    owners = {str((controller_of(each.last) or {}).get("uid")) for each in (first, second)}
    before = [each for each in first.versions if version_of(each) < second.begin]
    is_going = any(each["metadata"].get("deletionTimestamp") for each in before) or first.end < second.begin
    return len(owners) == 1 and not is_going
