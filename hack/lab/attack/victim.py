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
    """A job with the times of its changes, in seconds since the call that created it; None: not yet."""

    plan: JobPlan
    begin: float
    created: float | None = None
    # When a watch of the tenant's own showed it; the operator sees it no earlier.
    watched: float | None = None
    first_child: float | None = None
    all_pods: float | None = None
    admitted: float | None = None
    ended: float | None = None
    outcome: str = ""
    pods: set[str] = field(default_factory=set)

    @property
    def kind(self) -> str:
        return "gang" if self.plan.is_gang else self.plan.kind.lower()

    @property
    def started(self) -> float | None:
        """When the job had started: its first child, all pods, and for a gang the admission were observed."""
        parts = [self.first_child, self.all_pods, *([self.admitted] if self.plan.is_gang else [])]
        known = [part for part in parts if part is not None]
        return max(known) if len(known) == len(parts) else None


def small_job(number: int) -> JobPlan:
    """Returns the plan of a job."""
    name, spec = f"small-{number}", {"ttlSecondsAfterFinished": _TTL_SECONDS}
    if number % 3 == 2:
        return JobPlan(name, TRAINJOB, "", [Part("node", 2, RUN_SECONDS)], framework="torch", cpu="1", spec=spec)
    parts = [Part("MASTER", 1, RUN_SECONDS), Part("WORKER", 2, RUN_SECONDS)]
    return JobPlan(name, TFJOB, "", parts, is_gang=number % 3 == 1, cpu="1", spec=spec)


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
        if self._create(path_of(plan, self._namespace), manifest(plan)):
            job.created = time.monotonic() - job.begin

    def _create(self, path: str, body: Object) -> bool:
        try:
            self._api.create(path.format(self._namespace), body)
        except (RefusedError, urllib3.exceptions.HTTPError) as error:
            self.refused.append(f"{body['metadata']['name']}: {error}")
            return False
        return True

    def _see(self, path: str, obj: Object) -> None:
        with self._lock:
            job = self.jobs.get(_name_of(path, obj))
            if job is None:
                return
            seconds = time.monotonic() - job.begin
            if path == _JOBS:
                job.first_child = seconds if job.first_child is None else job.first_child
            elif path == PODS:
                job.pods.add(obj["metadata"]["uid"])
                if len(job.pods) >= expected_pods(job.plan) and job.all_pods is None:
                    job.all_pods = seconds
            elif path == GANGS:
                if (obj.get("status") or {}).get("phase") in _ADMITTED and job.admitted is None:
                    job.admitted = seconds
            else:
                job.watched = seconds if job.watched is None else job.watched
                if job.outcome:
                    return
                conditions = (obj.get("status") or {}).get("conditions") or ()
                true = [condition["type"] for condition in conditions if condition["status"] == "True"]
                ends = [_ENDS[kind] for kind in true if kind in _ENDS]
                if ends:
                    job.outcome, job.ended = ends[0], seconds


def _name_of(path: str, obj: Object) -> str:
    """Returns the name of the job that the object is or belongs to."""
    metadata = obj["metadata"]
    if path in (TFJOBS, TRAINJOBS):
        return str(metadata["name"])
    labels = metadata.get("labels") or {}
    names = [labels[label] for label in _LABELS if label in labels]
    names += [each["name"] for each in metadata.get("ownerReferences") or () if each["kind"] in _OWNER_KINDS]
    return str(names[0]) if names else ""
