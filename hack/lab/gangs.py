"""`make chaos-gang`: injects faults while gangs of two tenants run, most of all faults of gang scheduling.

It is `make chaos` (lab.chaos) with other jobs and other frequencies of faults. Every job is a gang. Each tenant has a
namespace and a quota, and one of them has two gangs of three. Urgent gangs preempt others, large ones have to wait for
capacity, and elastic ones shrink and grow. The variables are those of `make chaos`, with these defaults:

CHAOS_FAULTS    number of faults, 400
CHAOS_JOBS      number of gangs, 400
CHAOS_MEAN      mean seconds between faults, 1.5
CHAOS_KINDS     kinds of faults (lab.gangs.FAULTS), separated by commas; by default all
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from lab import chaos, command
from lab.chaos import ChaosSettings, Scenario
from lab.command import kinds_variable, variable
from lab.jobs import FLAVOURS, TFJOB, URGENT, Flavours, JobPlan, Part, plan_of
from lab.requests import GANG_FAULTS
from lab.stage import NAMESPACE, TENANT
from localcluster.api import Api, RefusedError

# All nodes together take 300 pods. A launcher requests no CPU, so a quota of CPUs would refuse it.
_QUOTAS = {NAMESPACE: "200", TENANT: "100"}
_FLAGS = (
    *("--preemption=on", "--preempt-after=1s", "--preemption-grace=1s"),
    *("--scale-down-after=4s", "--scale-up-after=4s"),
)
# Until the API server knows a new PriorityClass and the account of a new namespace.
_TRIES, _TRY_SECONDS = 100, 0.1
# Relative frequency of each kind. After a leader was killed there is no leader until its Lease of 15 s expires, so that
# frequent kills would leave time for little else.
FAULTS: Mapping[str, int] = {
    **dict.fromkeys(GANG_FAULTS, 4),
    "foreign pods": 16,
    "foreign pods on our scheduler": 8,
    "node cordoned": 8,
    "node deleted": 6,
    "gang scheduler killed": 6,
    "gang kube-scheduler killed": 1,
    "gang kube-scheduler stopped": 2,
    "gang leader killed": 1,
    "gang leader stopped": 3,
    "controller stopped": 2,
    "kube-apiserver killed": 1,
    "etcd killed": 1,
    "connections cut": 3,
    "job suspended": 4,
    "job scaled": 4,
    "pod deleted": 4,
    "Gang deleted": 2,
}


def _as_gang(flavour: str) -> Callable[[random.Random], JobPlan]:
    return lambda rng: replace(FLAVOURS[flavour][1](rng), is_gang=True)


def _large(rng: random.Random) -> JobPlan:
    """Returns a job that takes up to two thirds of the cluster; a few of them leave no place for others."""
    seconds = rng.uniform(8.0, 20.0)
    parts = [Part("MASTER", 1, seconds), Part("WORKER", rng.randint(8, 24), seconds * 0.8)]
    return JobPlan(TFJOB, parts, is_gang=True, cpu=rng.choice(("2", "4")))


def _urgent(rng: random.Random) -> JobPlan:
    return replace(_large(rng), is_urgent=True)


# A deadline would pass while a gang waits, and what `cleanPodPolicy: None` keeps would hold the capacity of its gang.
_NO_GANGS = ("deadline", "master")
GANG_FLAVOURS: Flavours = {
    **{name: (weight, _as_gang(name)) for name, (weight, _) in FLAVOURS.items() if name not in _NO_GANGS},
    "large": (8, _large),
    "urgent": (8, _urgent),
}


@dataclass(frozen=True)
class GangSettings(ChaosSettings):
    faults: int = variable("CHAOS_FAULTS", 400)
    jobs: int = variable("CHAOS_JOBS", 400)
    mean_seconds: float = variable("CHAOS_MEAN", 1.5)
    kinds: tuple[str, ...] = kinds_variable(FAULTS)


def gang_plan(number: int, seed: int) -> JobPlan:
    """Returns job `number` of the run with that seed, independently of other calls."""
    return replace(plan_of(number, seed, GANG_FLAVOURS), namespace=TENANT if number % 3 == 0 else NAMESPACE)


def _prepare(api: Api) -> None:
    """Creates the quotas, and the PriorityClass of urgent gangs with a pod of each tenant, by which it counts."""
    body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": URGENT}, "value": 1000}
    api.create("/apis/scheduling.k8s.io/v1/priorityclasses", body)
    for name, pods in _QUOTAS.items():
        _admit_a_pod(api, name)
        quota = {"metadata": {"name": name}, "spec": {"hard": {"pods": pods}}}
        api.create(f"/api/v1/namespaces/{name}/resourcequotas", quota)


def _admit_a_pod(api: Api, namespace: str) -> None:
    """Creates a pod of the PriorityClass that no scheduler starts, once the API server knows both."""
    container = {"name": "main", "image": "localhost/none", "resources": {"requests": {"cpu": "0"}}}
    spec = {"schedulerName": "nobody", "priorityClassName": URGENT, "containers": [container]}
    body = {"metadata": {"name": "urgent"}, "spec": spec}
    for left in range(_TRIES, -1, -1):
        try:
            api.create_if_missing(f"/api/v1/namespaces/{namespace}/pods", body)
            return
        except RefusedError:
            if not left:
                raise
            time.sleep(_TRY_SECONDS)


GANGS = Scenario("chaos-gang", gang_plan, FAULTS, _prepare, _FLAGS, ("--preemption-grace=1",))


if __name__ == "__main__":
    sys.exit(command.main("chaos-gang", __doc__, lambda: chaos.play(GANGS, GangSettings.of(os.environ))))
