"""What must not run: two pods of one replica at a time, and anything after the end of a job. Pure.

Kubelets report starts and ends in whole seconds, so two that are in the same second have no order and break no rule.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from audit.jobs.ends import is_lost_at
from audit.jobs.facts import (
    all_statuses,
    deciding_statuses,
    has_ended,
    is_bound,
    is_finished,
    is_running,
    terminations,
)
from audit.jobs.family import Family, controller_uid
from audit.jobs.history import NEVER, PODS, ObjectRecord, is_being_deleted, version_of
from audit.objects import epoch_seconds


def overlapping_pods(family: Family) -> Iterator[str]:
    """Yields pods of two Jobs for one replica of which the second was bound before the first one had ended.

    A pod that is being deleted runs until its end is reported, or its node counts as lost. Two pods of one Job are
    allowed: a Job controller whose create request got no response creates another pod, and deletes one of them later.
    """
    for pods in family.pods.values():
        for first, second in itertools.combinations(sorted(pods, key=lambda pod: pod.first(is_bound)), 2):
            until = min(first.first(has_ended), first.end)
            is_of_one_job = controller_uid(first) == controller_uid(second)
            if second.first(is_bound) < until and not is_of_one_job and not is_lost_at(first, second.times[0]):
                yield f"{first} and {second} of two Jobs for one replica at once"


def overlapping_containers(family: Family) -> Iterator[str]:
    """Yields two pods of one replica that had running containers at the same time, unless a node was lost.

    A Job controller whose create request got no response may create a surplus pod beside one that nobody has deleted.
    """
    for replica, pods in family.pods.items():
        started = sorted(filter(_starts_of, pods), key=_began)
        for first, second in itertools.combinations(started, 2):
            if second.begin > _reported_end(first) or _is_surplus(first, second) or is_lost_at(first, second.times[0]):
                continue
            until = _ran_until(first)
            seconds = (until if until == NEVER.at else int(until)) - _began(second)
            if seconds > 0:
                yield f"{second} ran {replica} while containers of {first} still ran, for {seconds:g} s"


def starts_after_the_end(family: Family) -> Iterator[str]:
    """Yields pods that were created, and containers that started, after the status reported the end of their job.

    With `cleanPodPolicy: None`, kubelets may start a container again in its pod: a sidecar, or one whose pod is then
    stopped, because nothing can prevent the first such restart.
    """
    ended = family.job.first(is_finished)
    for pod in family.of(PODS):
        if pod.begin > ended.version and pod.is_begin_seen:
            yield f"{pod} was created after {family.job} had finished"
        for name, at in sorted(_starts_of(pod)):
            if at > ended.at and not _is_kept(pod, name, ended.at):
                yield f"container {name} of {pod} started {at - ended.at:.1f} s after {family.job} had finished"


def _starts_of(pod: ObjectRecord) -> set[tuple[str, float]]:
    """Returns name and time of each observed start of a container, init containers and sidecars included."""
    starts = set()
    for version in pod.versions:
        for status in all_statuses(version):
            for state in (status.get("state") or {}, status.get("lastState") or {}):
                began = (state.get("running") or state.get("terminated") or {}).get("startedAt")
                # A container that could not start has the time 0.
                if epoch_seconds(began) > 0:
                    starts.add((str(status["name"]), epoch_seconds(began)))
    return starts


def _began(pod: ObjectRecord) -> float:
    return min(at for _, at in _starts_of(pod))


def _ran_until(pod: ObjectRecord) -> float:
    """Returns when the last container of the pod had ended; infinite if one still runs.

    An end without a time counts when it was observed, as do containers that are not reported to have ended when the pod
    is deleted.
    """
    until = 0.0
    for version, moment in pod.moments():
        ends = [epoch_seconds(ended.get("finishedAt")) for ended in terminations(all_statuses(version), "state")]
        if any(map(is_running, all_statuses(version))):
            until = NEVER.at
        elif until == NEVER.at:
            until = max((at or moment.at for at in ends), default=moment.at)
        else:
            until = max([until, *ends])
    return pod.end.at if until == NEVER.at else until


def _is_kept(pod: ObjectRecord, name: str, ended_at: float) -> bool:
    """Reports whether the container had run before that time, and its pod is stopped or the container is a sidecar."""
    is_stopped = pod.ended is not None or is_being_deleted(pod.last) or has_ended(pod.last)
    decides = name in {status["name"] for status in deciding_statuses(pod.last)}
    return (is_stopped or not decides) and any(known == name and at <= ended_at for known, at in _starts_of(pod))


def _reported_end(pod: ObjectRecord) -> float:
    """Returns the version from which on no container of the pod is reported to run."""
    running = [any(map(is_running, all_statuses(version))) for version in pod.versions]
    last = max((number for number, is_any_running in enumerate(running) if is_any_running), default=-1)
    return version_of(pod.versions[last + 1]) if last + 1 < len(pod.versions) else pod.end.version


def _is_surplus(first: ObjectRecord, second: ObjectRecord) -> bool:
    is_going = first.deletion.version < second.begin
    return controller_uid(first) == controller_uid(second) and not is_going
