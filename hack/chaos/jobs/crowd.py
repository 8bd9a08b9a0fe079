"""The jobs of a run and their users: what was submitted, what has become of it, and what users do to it.

A job is through when it has come to an end, or is gone as its user (or its own time to live) wished. What is asked of a
server that does not answer is asked again until it does. Who deletes a job and orphans its children (`Orphan`) takes
the children away himself, once the job is gone.

Threads: one for each kind's watch, one for what comes later; gone after `stop`. All methods may be called from any.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import urllib3

from chaos.jobs.manifests import TFJOBS, TRAINJOBS, manifest, path_of
from chaos.jobs.plan import TFJOB, JobPlan
from chaos.picture import Mirror
from chaos.timer import Timer
from localcluster.api import Api, RefusedError
from localcluster.gangscheduler import NAME

Object = dict[str, Any]

_RETRY_SECONDS = 0.3
_RESUME_SECONDS = 3.0
_ENDED = ("Done", "Failed")
_REFUSED_FOR_EVER = (404, 422)
CHILDREN = (
    "/apis/batch/v1/namespaces/{}/jobs",
    "/api/v1/namespaces/{}/services",
    "/api/v1/namespaces/{}/configmaps",
    "/api/v1/namespaces/{}/secrets",
    "/apis/scheduling.kubeflow.org/v1alpha1/namespaces/{}/gangs",
)
Errors = (RefusedError, urllib3.exceptions.HTTPError, OSError)


@dataclass(slots=True)
class _Life:
    """What is known of one job besides its last version."""

    plan: JobPlan
    is_ended: bool = False
    is_gone: bool = False
    deletion: str = ""
    """The propagation policy with which its user deletes it."""
    has_orphans: bool = False
    suspend: bool = False

    @property
    def is_through(self) -> bool:
        if self.deletion:
            return self.is_gone and not self.has_orphans
        return self.is_ended or (self.is_gone and self.plan.goes_by_itself)


class Crowd:
    """All of a run. See the module."""

    scheduler = NAME

    def __init__(self, api: Api, namespace: str) -> None:
        self.api = api
        self.namespace = namespace
        self._lives: dict[str, _Life] = {}
        self._lock = threading.Lock()
        self._timer = Timer("crowd-time")
        paths = [path.format(namespace) for path in (TFJOBS, TRAINJOBS)]
        self._mirrors = [Mirror(api, path, lambda obj: str(obj["metadata"]["name"]), self._note) for path in paths]

    def start(self) -> None:
        for mirror in self._mirrors:
            mirror.start()
        self._timer.start()

    def stop(self) -> None:
        for mirror in self._mirrors:
            mirror.stop()
        self._timer.stop()

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        self._timer.later(seconds, action)

    def submit(self, plan: JobPlan) -> None:
        """May be said again. Raises RefusedError, and urllib3's HTTPError."""
        with self._lock:
            self._lives.setdefault(plan.name, _Life(plan))
        self.api.create_if_missing(path_of(plan, self.namespace), manifest(plan))
        if plan.is_suspended_at_first:
            self.later(_RESUME_SECONDS, lambda: self.suspend(plan.name, value=False))

    def plan_of(self, name: str) -> JobPlan | None:
        life = self._lives.get(name)
        return life.plan if life else None

    def get(self, name: str) -> Object | None:
        """As the watch knows it."""
        return self._mirrors[0 if self._lives[name].plan.kind == TFJOB else 1].of(name).get(name)

    def live(self) -> list[JobPlan]:
        """Those that run or wait, by name."""
        return [life.plan for life in self._all() if not (life.is_through or life.deletion)]

    def there(self) -> list[JobPlan]:
        """Those that nobody deletes, ended ones too."""
        return [life.plan for life in self._all() if not (life.deletion or life.is_gone)]

    @property
    def through(self) -> int:
        return sum(life.is_through for life in self._all())

    @property
    def unfinished(self) -> dict[str, str]:
        """What is said of each job that is not through."""
        return {life.plan.name: self._words(life) for life in self._all() if not life.is_through}

    @property
    def wrong(self) -> dict[str, str]:
        """What has ended otherwise than it should, by name."""
        found = {}
        for life in self._all():
            status = (self.get(life.plan.name) or {}).get("status") or {}
            # A TFJob's is Succeeded or Failed, a TrainJob's SUCCESS or FAILED.
            state = str(status.get("state")).upper().replace("SUCCEEDED", "SUCCESS")
            if life.is_ended and status and state != life.plan.expects:
                found[life.plan.name] = f"{state}, not {life.plan.expects}: {status.get('reason')}"
        return found

    def suspend(self, name: str, *, value: bool) -> None:
        """Now, or as soon as the server lets it; what was said last counts."""
        self._lives[name].suspend = value
        self._insist(lambda: self._patch(name, {"suspend": self._lives[name].suspend}))

    def scale(self, name: str, workers: int) -> None:
        """Raises RefusedError, and urllib3's HTTPError."""
        self._patch(name, {"workerReplicas": workers})

    def delete(self, name: str, propagation: str) -> None:
        """Now, or as soon as the server lets it."""
        life = self._lives[name]
        life.deletion = propagation
        life.has_orphans = propagation == "Orphan"
        path = f"{path_of(life.plan, self.namespace)}/{name}"
        self._insist(lambda: self.api.delete(path, propagationPolicy=propagation))

    def children(self, plan: JobPlan, path: str) -> list[Object]:
        """Those of one job. Raises RefusedError, and urllib3's HTTPError."""
        label = "tf_job_name" if plan.kind == TFJOB else "train_job_name"
        return self.api.list(path.format(self.namespace), f"{label}={plan.name}")

    def _patch(self, name: str, spec: Object) -> None:
        self.api.patch(f"{path_of(self._lives[name].plan, self.namespace)}/{name}", {"spec": spec})

    def _insist(self, request: Callable[[], object]) -> None:
        """Again and again, unless it can never be."""
        try:
            request()
        except Errors as error:
            if not (isinstance(error, RefusedError) and error.status in _REFUSED_FOR_EVER):
                self.later(_RETRY_SECONDS, lambda: self._insist(request))

    def _note(self, name: str) -> None:
        """In the watches' threads: a job has changed, or is gone."""
        life = self._lives.get(name)
        if life is None:
            return
        job = self.get(name)
        life.is_gone = job is None
        life.is_ended = life.is_ended or ((job or {}).get("status") or {}).get("phase") in _ENDED
        if life.is_gone and life.has_orphans:
            self.later(0.0, lambda: self._take_orphans(life))

    def _take_orphans(self, life: _Life) -> None:
        try:
            left = [(path, each) for path in CHILDREN for each in self.children(life.plan, path)]
            for path, each in left:
                self.api.delete(
                    f"{path.format(self.namespace)}/{each['metadata']['name']}", propagationPolicy="Background"
                )
        except Errors:
            left = [("", {})]
        life.has_orphans = bool(left)
        if left:
            self.later(_RETRY_SECONDS, lambda: self._take_orphans(life))

    def _all(self) -> Iterable[_Life]:
        with self._lock:
            return list(self._lives.values())

    def _words(self, life: _Life) -> str:
        status = (self.get(life.plan.name) or {}).get("status") or {}
        words = [status.get("phase"), status.get("state"), status.get("reason"), life.deletion and "to be deleted"]
        return ", ".join(word for word in words if word) or "nothing is said of it"
