"""`make chaos-gang`: creates and deletes gangs during faults; an auditor reports violations of the rules.

It has a control plane of its own, fake nodes, gang scheduler and kube-scheduler as processes, and simple owners of
gangs of two tenants. Each tenant has a namespace and a quota, and one of them has two gangs of three. Urgent gangs
preempt others, and elastic ones shrink and grow. Progress goes to standard error; the last line on standard output is
JSON. Exit code 1 if there were violations, or gangs that did not complete.

CHAOS_GANGS     number of gangs, 1000
CHAOS_SEED      seed of all random choices; by default random
CHAOS_AT_ONCE   number of gangs at a time, 32
CHAOS_FAULTS    mean seconds between faults, 1.5; 0 for none
CHAOS_KINDS     kinds of faults (lab.gangs.FAULTS), separated by commas; by default all
CHAOS_PATIENCE  seconds without progress after which the run ends, 120
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lab import command
from lab.command import Interval, Patience, Settings, kinds_variable, progress, seed_variable, variable
from lab.faults import CapacityFaults, GangFaults
from lab.injection import REQUEST_ERRORS, Faults, Injections, random_fault
from lab.owners import URGENT, Owners, gang_plan, pod
from lab.requests import RequestFaults
from lab.stage import NAMESPACE, Stage, open_stage
from localcluster.api import Api, RefusedError
from localcluster.gangscheduler import NAME
from localcluster.timer import Timer

_POLL_SECONDS, _SHOW_SECONDS = 0.05, 10.0
# The tenants: of three gangs the first one has two. All nodes together have 160 CPUs and take 300 pods, and the largest
# gang has 50 pods of two CPUs.
_TENANTS = {"flood": {"requests.cpu": "150", "pods": "280"}, NAMESPACE: {"requests.cpu": "150"}}
_FLAGS = (
    *("--preemption=on", "--preempt-after=1s", "--preemption-grace=1s"),
    *("--scale-down-after=4s", "--scale-up-after=4s"),
)
# Owners here delete removed pods at once.
_AUDITOR_FLAGS = ("--preemption-grace=1", "--resize=5")
# Until the API server knows a new PriorityClass and the account of a new namespace.
_TRIES, _TRY_SECONDS = 100, 0.1
# Relative frequency of each kind. After a leader was killed there is no leader until its Lease of 15 s expires, so that
# frequent kills would leave time for little else.
FAULTS: Mapping[str, int] = {
    "foreign pods": 16,
    "foreign pods on our scheduler": 8,
    "node cordoned": 8,
    "node deleted": 6,
    "gang scheduler killed": 6,
    "gang kube-scheduler killed": 1,
    "gang kube-scheduler stopped": 2,
    "leader killed": 1,
    "leader stopped": 3,
    "kube-apiserver killed": 1,
    "etcd killed": 1,
    "connections cut": 3,
    "bindings 409": 4,
    "bindings 429": 4,
    "bindings 500": 4,
    "bindings cut before": 4,
    "bindings cut after": 6,
    "bindings late": 4,
    "bindings timed out": 2,
    "gang statuses refused": 6,
    "gang statuses cut after": 4,
    "gang statuses late": 4,
}


@dataclass(frozen=True)
class GangSettings(Settings):
    seed: int = seed_variable("CHAOS_SEED")
    gangs: int = variable("CHAOS_GANGS", 1000)
    at_once: int = variable("CHAOS_AT_ONCE", 32)
    fault_seconds: float = variable("CHAOS_FAULTS", 1.5)
    kinds: tuple[str, ...] = kinds_variable(FAULTS)
    patience_seconds: float = variable("CHAOS_PATIENCE", 120.0)


class Run:
    """One run on a stage."""

    def __init__(self, stage: Stage, settings: GangSettings) -> None:
        self._settings = settings
        self._stage = stage
        rng = random.Random(settings.seed)  # noqa: S311 -- to be repeated, not to be kept secret
        flood, other = self._tenants = [Owners(stage.api, namespace, NAME) for namespace in _TENANTS]
        plans = [gang_plan(number, rng) for number in range(settings.gangs)]
        self._plans = [(other if number % 3 == 0 else flood, plan) for number, plan in enumerate(plans)]
        stopping, self._timer = threading.Event(), Timer("capacity")
        gangs, capacity = GangFaults(stage, stopping), CapacityFaults(stage.api, self._timer.later)
        self._faults = Faults(
            Injections(
                lambda _: random_fault(rng, settings.fault_seconds, FAULTS, settings.kinds),
                {**capacity.actions, **gangs.actions},
                ends=(gangs.restore, capacity.restore),
            ),
            stopping,
        )
        self._begin = time.monotonic()
        self._shows = Interval(_SHOW_SECONDS)

    def play(self) -> dict[str, Any]:
        """Runs all gangs and returns the fields of the JSON line."""
        _prepare(self._stage.api)
        self._timer.start()
        for owners in self._tenants:
            owners.start()
        if self._settings.fault_seconds:
            self._faults.start()
        try:
            self._drive()
            unfinished = {name: status for owners in self._tenants for name, status in owners.unfinished.items()}
        finally:
            self._faults.stop()
            for owners in self._tenants:
                owners.stop()
            self._timer.stop()
        return self._result(unfinished, *self._stage.audited())

    def _drive(self) -> None:
        """Keeps `at_once` gangs submitted until all have completed or none makes progress any more."""
        submitted, patience = 0, Patience(self._settings.patience_seconds)
        while (finished := self._finished) < len(self._plans) and not patience.is_over(finished):
            # If the server does not respond, the request is repeated in the next iteration.
            with contextlib.suppress(*REQUEST_ERRORS):
                while submitted < len(self._plans) and submitted - finished < self._settings.at_once:
                    owners, plan = self._plans[submitted]
                    owners.submit(plan)
                    submitted += 1
            if self._shows.is_due():
                self._show(finished)
            time.sleep(_POLL_SECONDS)

    @property
    def _finished(self) -> int:
        return sum(owners.finished for owners in self._tenants)

    @property
    def _counts(self) -> Counter[str]:
        return sum((owners.counts for owners in self._tenants), Counter())

    def _show(self, finished: int) -> None:
        counts = self._counts
        progress(
            f"{time.monotonic() - self._begin:5.0f} s  {finished} of {len(self._plans)} gangs completed, "
            f"{counts['pods']} pods, {counts['gangs preempted']} preempted, {counts['resizes']} resized, "
            f"{self._faults.summary}"
        )

    def _result(self, unfinished: dict[str, str], report: dict[str, Any]) -> dict[str, Any]:
        for name, status in unfinished.items():
            progress(f"{name} did not complete: {status}")
        for problem in sorted(self._faults.problems):
            progress(f"fault did not happen: {problem}")
        return {
            "gangs": len(self._plans),
            "pods": self._counts["pods"],
            "faults": self._faults.counts.total(),
            "violations": report.pop("violations"),
            "seed": self._settings.seed,
            "seconds": round(time.monotonic() - self._begin, 1),
            "unfinished": len(unfinished),
            "faults_by_kind": dict(sorted(self._faults.counts.items())),
            "requests_hit": dict(sorted(self._stage.requests.hits.items())),
            "ended_by_themselves": self._stage.gang_programs_ended,
            "nobody_led_seconds": round(self._stage.outages.idle_seconds, 1),
            "owners": dict(self._counts),
            "auditor": report,
        }


def _prepare(api: Api) -> None:
    """Creates the tenants, and the PriorityClass of urgent gangs with a pod of each tenant, by which it counts."""
    body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": URGENT}, "value": 1000}
    api.create("/apis/scheduling.k8s.io/v1/priorityclasses", body)
    for name, hard in _TENANTS.items():
        api.create_if_missing("/api/v1/namespaces", {"metadata": {"name": name}})
        _admit_a_pod(api, name)
        api.create(f"/api/v1/namespaces/{name}/resourcequotas", {"metadata": {"name": name}, "spec": {"hard": hard}})


def _admit_a_pod(api: Api, namespace: str) -> None:
    """Creates a pod of the PriorityClass that no scheduler starts, once the API server knows both."""
    body = pod("urgent", "0", "nobody", 0, priority_class=URGENT)
    for left in range(_TRIES, -1, -1):
        try:
            api.create_if_missing(f"/api/v1/namespaces/{namespace}/pods", body)
            return
        except RefusedError:
            if not left:
                raise
            time.sleep(_TRY_SECONDS)


def run() -> bool:
    """Runs the command; returns whether all is well."""
    settings = GangSettings.of(os.environ)
    progress(f"repeat with: make chaos-gang {settings.variables}")
    with open_stage(RequestFaults(settings.seed), _FLAGS, _AUDITOR_FLAGS) as stage:
        result = Run(stage, settings).play()
        is_ok = not (result["violations"] or result["unfinished"])
        if not is_ok:
            progress(f"logs of the programs: {command.keep_logs('chaos', stage.plane.logs)}")
            progress(f"repeat with: make chaos-gang {settings.variables}")
    command.show_result(result)
    return is_ok


if __name__ == "__main__":
    sys.exit(command.main("chaos-gang", __doc__, run))
