"""`make chaos-gang`: creates and deletes gangs during faults; an auditor reports violations of the rules.

It has a control plane of its own, fake nodes, gang scheduler and kube-scheduler as processes, and simple owners of
gangs of two tenants. Each tenant has a namespace and a quota, and one of them has two gangs of three. Urgent gangs
preempt others, and elastic ones shrink and grow. Progress goes to standard error; the last line on standard output is
JSON. Exit code 1 if there were violations, or gangs that did not complete.

CHAOS_GANGS     number of gangs, 1000
CHAOS_SEED      seed of all random choices; by default random
CHAOS_AT_ONCE   number of gangs at a time, 32
CHAOS_FAULTS    mean seconds between faults, 1.5; 0 for none
CHAOS_KINDS     kinds of faults (chaos.plan.FAULTS), separated by commas; by default all
CHAOS_PATIENCE  seconds without progress after which the run ends, 120
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

import urllib3

from chaos import command
from chaos.capacity import CapacityFaults
from chaos.command import progress
from chaos.faults import Action, Faults, Injections
from chaos.kills import Kills
from chaos.owner import URGENT, Owners, pod
from chaos.plan import FAULTS, GangPlan, fault, gang_plan
from chaos.requests import REQUEST_FAULTS, RequestFaults
from chaos.stage import NAMESPACE, Stage, StageOptions, open_stage
from localcluster.api import Api, RefusedError
from localcluster.gangscheduler import NAME

_POLL_SECONDS = 0.05
_SHOW_SECONDS = 10.0
# The tenants: of three gangs the first one has two. All nodes together have 160 CPUs and take 300 pods, and the largest
# gang has 50 pods of two CPUs.
_TENANTS = {"flood": {"requests.cpu": "150", "pods": "280"}, NAMESPACE: {"requests.cpu": "150"}}
_PREEMPTION_GRACE_SECONDS = 1.0
# Until the API server knows a new PriorityClass and the account of a new namespace.
_TRIES, _TRY_SECONDS = 100, 0.1
_OPTIONS = StageOptions(
    flags=(
        "--preemption=on",
        "--preempt-after=1s",
        f"--preemption-grace={_PREEMPTION_GRACE_SECONDS:g}s",
        "--scale-down-after=4s",
        "--scale-up-after=4s",
    ),
    # Owners here delete removed pods at once.
    auditor_flags=(f"--preemption-grace={_PREEMPTION_GRACE_SECONDS}", "--resize=5"),
)


@dataclass(frozen=True, slots=True)
class Settings:
    gangs: int
    seed: int
    at_once: int
    fault_seconds: float
    kinds: tuple[str, ...]
    patience_seconds: float

    @property
    def variables(self) -> str:
        """The variables that repeat the run, for the command line of make."""
        values = {"SEED": self.seed, "GANGS": self.gangs, "AT_ONCE": self.at_once, "FAULTS": self.fault_seconds}
        return command.variables({f"CHAOS_{name}": value for name, value in values.items()}, self.kinds)


def settings_of(environ: dict[str, str]) -> Settings:
    """Returns the settings of the environment. Raises ValueError if one is invalid."""
    return Settings(
        gangs=int(environ.get("CHAOS_GANGS", "1000")),
        seed=command.seed(environ, "CHAOS_SEED"),
        at_once=int(environ.get("CHAOS_AT_ONCE", "32")),
        fault_seconds=command.number(environ, "CHAOS_FAULTS", 1.5),
        kinds=command.kinds(environ, FAULTS),
        patience_seconds=command.number(environ, "CHAOS_PATIENCE", 120),
    )


class Run:
    """One run on a stage."""

    def __init__(self, stage: Stage, settings: Settings) -> None:
        self._settings = settings
        self._stage = stage
        rng = random.Random(settings.seed)  # noqa: S311 -- to be repeated, not to be kept secret
        flood, other = self._tenants = [Owners(stage.api, namespace, NAME) for namespace in _TENANTS]
        plans = [gang_plan(number, rng) for number in range(settings.gangs)]
        self._plans: list[tuple[Owners, GangPlan]] = [
            (other if number % 3 == 0 else flood, plan) for number, plan in enumerate(plans)
        ]
        self._faults = _faults(stage, flood, rng, settings)
        self._begin = time.monotonic()
        self._shown_at = 0.0

    def play(self) -> dict[str, Any]:
        """Runs all gangs and returns the fields of the JSON line."""
        _prepare(self._stage.api)
        for owners in self._tenants:
            owners.start()
        if self._settings.fault_seconds:
            self._faults.start()
        try:
            self._drive()
            unfinished = {name: status for owners in self._tenants for name, status in owners.unfinished.items()}
        finally:
            if self._settings.fault_seconds:
                self._faults.stop()
            for owners in self._tenants:
                owners.stop()
        return self._result(unfinished, self._stage.auditor_report())

    def _drive(self) -> None:
        """Keeps `at_once` gangs submitted until all have completed or none makes progress any more."""
        submitted, last, progress_at = 0, 0, time.monotonic()
        while (finished := self._finished) < len(self._plans):
            # If the server does not respond, the request is repeated in the next iteration.
            with contextlib.suppress(RefusedError, urllib3.exceptions.HTTPError):
                while submitted < len(self._plans) and submitted - finished < self._settings.at_once:
                    owners, plan = self._plans[submitted]
                    owners.submit(plan)
                    submitted += 1
            if finished != last:
                last, progress_at = finished, time.monotonic()
            if time.monotonic() - progress_at > self._settings.patience_seconds:
                return
            self._show()
            time.sleep(_POLL_SECONDS)

    @property
    def _finished(self) -> int:
        return sum(len(owners.finished) for owners in self._tenants)

    @property
    def _counts(self) -> Counter[str]:
        return sum((Counter(owners.counts) for owners in self._tenants), Counter())

    def _show(self) -> None:
        now = time.monotonic()
        if now - self._shown_at >= _SHOW_SECONDS:
            self._shown_at = now
            counts = self._faults.counts
            faults = f"{sum(counts.values())} faults of {len(counts)} kinds"
            own = self._counts
            completed = f"{self._finished} of {len(self._plans)} gangs completed"
            progress(
                f"{now - self._begin:5.0f} s  {completed}, {own['pods']} pods, {own['gangs preempted']} preempted, "
                f"{own['resizes']} resized, {faults}"
            )

    def _result(self, unfinished: dict[str, str], report: dict[str, Any]) -> dict[str, Any]:
        for name, status in unfinished.items():
            progress(f"{name} did not complete: {status}")
        for problem in self._faults.problems:
            progress(f"fault failed: {problem}")
        return {
            "gangs": len(self._plans),
            "pods": self._counts["pods"],
            "faults": self._faults.done,
            "violations": report.pop("violations"),
            "seed": self._settings.seed,
            "seconds": round(time.monotonic() - self._begin, 1),
            "unfinished": len(unfinished),
            "faults_by_kind": dict(sorted(self._faults.counts.items())),
            "requests_hit": dict(sorted(self._stage.requests.hits.items())),
            "ended_by_themselves": sum(
                program.ended_by_itself for replica in self._stage.replicas for program in replica.programs
            ),
            "nobody_led_seconds": round(self._stage.outages.idle_seconds, 1),
            "owners": dict(self._counts),
            "auditor": {**report, "races": len(report["races"])},
        }


def _faults(stage: Stage, owners: Owners, rng: random.Random, settings: Settings) -> Faults:
    def cut(_: float) -> None:
        stage.proxy.cut_all()
        stage.report_outage()

    stopping, capacity = threading.Event(), CapacityFaults(stage, owners)
    actions: dict[str, Action] = {
        **capacity.actions,
        **Kills(stage, stopping).actions,
        **{kind: functools.partial(stage.requests.turn_on, kind) for kind in REQUEST_FAULTS},
        "connections cut": cut,
    }
    ends = (stage.requests.turn_off, capacity.restore)
    return Faults(Injections(lambda _: fault(rng, settings.fault_seconds, settings.kinds), actions, ends), stopping)


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
    settings = settings_of(dict(os.environ))
    progress(f"{settings.gangs} gangs, CHAOS_SEED={settings.seed}")
    with open_stage(RequestFaults(settings.seed), progress, _OPTIONS) as stage:
        result = Run(stage, settings).play()
        is_ok = not (result["violations"] or result["unfinished"])
        if not is_ok:
            progress(f"logs of the programs: {command.keep_logs(stage.logs, 'chaos')}")
            progress(f"repeat with: make chaos-gang {settings.variables}")
    command.show_result(result)
    return is_ok


if __name__ == "__main__":
    sys.exit(command.main("chaos", __doc__, run))
