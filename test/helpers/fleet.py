"""Many TFJobs of many sorts at once, for tests that inject faults.

Each sort has its own final state, which it must reach despite any fault of the controller or the control plane.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import urllib3

from helpers.controller import Jobs
from helpers.manifests import container, master, parameter_servers, pod_template, tfjob, workers
from helpers.poll import until
from localcluster.api import Api, RefusedError
from localcluster.fakekubelet import EXIT_CODE, RUN_SECONDS, FakeKubelet

_PATIENCE_SECONDS = 120.0

Object = dict[str, Any]


def fleet_kubelet(api: Api, namespace: str) -> FakeKubelet:
    return FakeKubelet(api, namespace=namespace)


def runs(seconds: float, *codes: int) -> Object:
    """Returns a template whose container ends with these exit codes, one for each attempt."""
    notes = {RUN_SECONDS: str(seconds), EXIT_CODE: ",".join(str(code) for code in codes or (0,))}
    return {"metadata": {"annotations": notes}, **pod_template(container())}


@dataclass(frozen=True, slots=True)
class Sort:
    """`later` is a change that the user makes later; `end` is the final state, empty for a deleted job."""

    name: str
    manifest: Object
    end: str = "Succeeded"
    later: Object | None = None


SORTS = (
    Sort("plain", tfjob(master(template=runs(0.6)), workers(2, template=runs(0.3)))),
    Sort("servers", tfjob(master(template=runs(0.6)), workers(1, template=runs(0.4)), parameter_servers(1))),
    Sort("failing", tfjob(master(template=runs(0.5, 3)), workers(1, template=runs(60))), "Failed"),
    Sort("worker-killed", tfjob(master(template=runs(1.0)), workers(2, template=runs(0.2, 137, 1, 0)))),
    Sort("chief-killed", tfjob(master(template=runs(0.3, 143, 0)), workers(1, template=runs(0.2)))),
    Sort("cleaning-all", tfjob(master(template=runs(0.4)), workers(2, template=runs(60)), cleanPodPolicy="All")),
    Sort(
        "suspended",
        tfjob(master(template=runs(0.4)), workers(1, template=runs(0.2)), suspend=True),
        later={"spec": {"suspend": False}},
    ),
    Sort("deleted", tfjob(master(template=runs(600)), workers(1, template=runs(0.3))), "", later={}),
    Sort(
        "growing",
        tfjob(master(template=runs(2.0)), workers(1, template=runs(0.5))),
        later={"spec": {"workerReplicas": 2}},
    ),
)


@dataclass(slots=True)
class Fleet:
    """Submits jobs and knows the final state of each. Requests without a response are retried."""

    jobs: Jobs
    ends: dict[str, str] = field(default_factory=dict)
    _changes: dict[str, Object] = field(default_factory=dict)

    def submit(self, number: int, sorts: Iterable[Sort] = SORTS) -> str:
        """Submits job number `number`, whose sort follows from the number; returns its name."""
        choice = tuple(sorts)
        sort = choice[number % len(choice)]
        name = f"{sort.name}-{number}"
        manifest = {**sort.manifest, "metadata": {**sort.manifest["metadata"], "name": name}}
        patiently(lambda: self.jobs.submit(manifest))
        self.ends[name] = sort.end
        if sort.later is not None:
            self._changes[name] = sort.later
        return name

    def change(self, count: int | None = None) -> None:
        """Makes the changes that are due, oldest first: all, or so many."""
        for name in list(self._changes)[:count]:
            patch = self._changes.pop(name)
            if patch:
                patiently(lambda name=name, patch=patch: self.jobs.change(patch, name))  # type: ignore[misc] # bound now
            else:
                patiently(lambda name=name: self.jobs.delete(name))  # type: ignore[misc] # bound now

    def await_ends(self, timeout: float = _PATIENCE_SECONDS) -> None:
        """Waits until every job has its final state."""
        self.change()
        wanted = {name: end for name, end in self.ends.items() if end}
        until(lambda: set(self._states().items()) ^ set(wanted.items()), lambda different: not different, timeout)

    def _states(self) -> dict[str, str]:
        """Returns the state of each finished job, and "" for the others."""
        found = patiently(self.jobs.all)
        return {each["metadata"]["name"]: _state(each.get("status", {})) for each in found}


def _state(status: Object) -> str:
    return str(status["state"]) if status.get("phase") in ("Done", "Failed") else ""


def patiently(request: Callable[[], Any], timeout: float = _PATIENCE_SECONDS) -> Any:
    """Repeats a request until there is a response.

    An object that a repeated request finds created or deleted is accepted.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            return request()
        except (RefusedError, urllib3.exceptions.HTTPError, OSError) as error:
            if isinstance(error, RefusedError) and error.status in (404, 409):
                return None
            if time.monotonic() > deadline:
                raise
        time.sleep(0.1)
