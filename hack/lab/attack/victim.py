"""The other tenant, who creates a small job at intervals, and the result of each job.

TFJobs, TFJobs that start as gangs, and TrainJobs take turns. Threads: one for each watched kind.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import urllib3

from lab.jobs import TFJOB, TFJOBS, TRAINJOB, TRAINJOBS, JobPlan, Part, manifest, path_of
from lab.mirror import GANGS, PODS
from lab.submitted import CHILDREN
from localcluster.api import Api, RefusedError
from localcluster.follower import Existing, Follower

RUN_SECONDS = 2.0
_JOBS = CHILDREN[0]
_OWNER_KINDS = ("TFJob", "TrainJob")
_LABELS = ("tf_job_name", "train_job_name")
_ADMITTED = ("Admitted", "Bound", "Released")
_ENDS: Mapping[str, str] = {"Succeeded": "succeeded", "Complete": "succeeded", "Failed": "failed"}
_TTL_SECONDS = 600

Object = dict[str, Any]


@dataclass(slots=True)
class Job:
    """A job with the times of what was observed first, in seconds since the call that created it.

    It was `watched` when a watch of the tenant's own showed it; the operator sees it no earlier.
    """

    plan: JobPlan
    begin: float
    times: dict[str, float] = field(default_factory=dict)
    outcome: str = ""
    pods: set[str] = field(default_factory=set)

    @property
    def kind(self) -> str:
        return "gang" if self.plan.is_gang else self.plan.kind.lower()

    @property
    def started(self) -> float | None:
        """When the job had started: its first child, all pods, and for a gang the admission were observed."""
        events = ("first_child", "all_pods", *(("admitted",) if self.plan.is_gang else ()))
        times = [self.times[event] for event in events if event in self.times]
        return max(times) if len(times) == len(events) else None

    def note(self, event: str) -> None:
        self.times.setdefault(event, time.monotonic() - self.begin)


def small_job(number: int) -> JobPlan:
    """Returns the plan of a job."""
    name, spec = f"small-{number}", {"ttlSecondsAfterFinished": _TTL_SECONDS}
    if number % 3 == 2:
        return JobPlan(TRAINJOB, [Part("node", 2, RUN_SECONDS)], name, framework="torch", cpu="1", spec=spec)
    parts = [Part("MASTER", 1, RUN_SECONDS), Part("WORKER", 2, RUN_SECONDS)]
    return JobPlan(TFJOB, parts, name, is_gang=number % 3 == 1, cpu="1", spec=spec)


def expected_pods(plan: JobPlan) -> int:
    """Returns how many pods the job has."""
    return sum(part.count for part in plan.parts)


class Victim:
    """The other tenant (see the module)."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.jobs: dict[str, Job] = {}
        self.refused: list[str] = []
        self._api = api
        self._namespace = namespace
        self._lock = threading.Lock()
        self._followers = [
            Follower(api, path.format(namespace), Existing(functools.partial(self._see, path)))
            for path in (TFJOBS, TRAINJOBS, _JOBS, PODS, GANGS)
        ]

    def start(self) -> None:
        for follower in self._followers:
            follower.start()

    def stop(self) -> None:
        for follower in self._followers:
            follower.stop()

    @property
    def is_done(self) -> bool:
        with self._lock:
            return all(job.outcome for job in self.jobs.values())

    def submit(self, number: int) -> None:
        """Creates the next job."""
        plan = small_job(number)
        job = Job(plan, time.monotonic())
        with self._lock:
            self.jobs[plan.name] = job
        try:
            self._api.create(path_of(plan, self._namespace), manifest(plan))
            job.note("created")
        except (RefusedError, urllib3.exceptions.HTTPError) as error:
            self.refused.append(f"{plan.name}: {error}")

    def _see(self, path: str, obj: Object) -> None:
        with self._lock:
            job = self.jobs.get(_name_of(path, obj))
            if job is None:
                return
            status = obj.get("status") or {}
            if path == _JOBS:
                job.note("first_child")
            elif path == PODS:
                job.pods.add(obj["metadata"]["uid"])
                if len(job.pods) >= expected_pods(job.plan):
                    job.note("all_pods")
            elif path == GANGS:
                if status.get("phase") in _ADMITTED:
                    job.note("admitted")
            else:
                job.note("watched")
                conditions = status.get("conditions") or ()
                ends = [_ENDS.get(condition["type"], "") for condition in conditions if condition["status"] == "True"]
                if any(ends) and not job.outcome:
                    job.outcome = next(filter(None, ends))
                    job.note("ended")


def _name_of(path: str, obj: Object) -> str:
    """Returns the name of the job that the object is or belongs to."""
    metadata = obj["metadata"]
    if path in (TFJOBS, TRAINJOBS):
        return str(metadata["name"])
    labels = metadata.get("labels") or {}
    names = [labels[label] for label in _LABELS if label in labels]
    owners = metadata.get("ownerReferences") or ()
    names += [owner["name"] for owner in owners if owner["kind"] in _OWNER_KINDS]
    return str(names[0]) if names else ""
