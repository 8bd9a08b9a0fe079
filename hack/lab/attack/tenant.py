"""Attacks of a tenant with the role `edit` in one namespace: writes of all kinds at once, without a break.

The API server processes one write of the tenant at a time (`stage`), and a thread for each kind rests as long as its
write took. A write that the server refuses (quota, conflict, too many) is counted and not repeated.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from lab import jobs, mirror
from lab.attack.helpers import Attackers
from lab.attack.stage import HOSTILE, URGENT, URGENT_PRIORITY
from localcluster.api import Api
from localcluster.fakekubelet import EXIT_CODE, RUN_SECONDS
from tfjob_controller.api.gang import ATTEMPT_LABEL, GANG_LABEL, MAX_ENTRIES, MAX_KINDS, MAX_TERMS, MEMBER_LABEL

TFJOBS, TRAINJOBS = jobs.TFJOBS.format(HOSTILE), jobs.TRAINJOBS.format(HOSTILE)
GANGS, PODS = mirror.GANGS.format(HOSTILE), mirror.PODS.format(HOSTILE)
CONFIG_MAPS = f"/api/v1/namespaces/{HOSTILE}/configmaps"
# 1.2 MB of `{}` with the commas, below etcd's 1.5 MB; and the largest that is still decoded: below 256 KB and 10,000
# values, where an empty object counts as two.
BOMB_VALUES, LARGEST_VALUES, LARGEST_TEXT = 400_000, 4_900, 200_000
# What remains is five times as many values as are decoded.
_MAX_HALVINGS = 3
_WORST_PATTERN = r"\w*\w*\w*([^\W]\W)"

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Amounts:
    """The number of objects of each kind at a time."""

    bombs: int = 20
    largest: int = 20
    gangs: int = 8
    gang_jobs: int = 10
    jobs: int = 1000
    pods: int = 20
    heavy_pods: int = 34
    config_maps: int = 100
    # The CPUs of the namespace's quota.
    cpus: int = 800


# Minimum seconds between two writes of a kind.
_BOMB_SECONDS, _LARGEST_SECONDS = 2.0, 0.5
_GANG_SECONDS, _GANG_JOB_SECONDS = 0.25, 2.0
_FIRST_JOB_SECONDS, _JOB_SECONDS = 0.1, 0.4
_POD_SECONDS = 1.0
_HEAVY_SECONDS = 1.0
# 1.3 MB, below etcd's 1.5 MB. A busy API server does not process as many labels in its time limit.
_TOLERATIONS, _LABELS = 110_000, 20_000
_LASTING = 4


# What each kind of write is counted as.
KINDS = ("bomb", "large", "gang", "gang_job", "job", "pod", "heavy_pod", "config_map")


class Tenant(Attackers):
    """Writes of all kinds. `is_complete` is set when one of each kind has been accepted."""

    def __init__(self, api: Api, amounts: Amounts, is_complete: Event, over: Event) -> None:
        super().__init__(over, rests=True)
        self._api, self._amounts, self._is_complete = api, amounts, is_complete

    def kinds(self) -> list[Iterator[float]]:
        return [
            *(self._bombs(), self._largest(), self._heavy_pods(), self._config_maps()),
            *(self._gangs(), self._gang_jobs(), self._jobs(), self._pods()),
        ]

    def _create(self, kind: str, path: str, body: Object | bytes) -> None:
        with self.counted(kind):
            self._api.create(path, body)
        if all(self.counts[kind] for kind in KINDS):
            self._is_complete.set()

    def _delete(self, kind: str, path: str, **options: object) -> None:
        with self.counted(f"{kind}_deleted"):
            self._api.delete(path, **options)

    def _rewritten(
        self, kind: str, path: str, count: int, body: Callable[[int], bytes], rest: float, recreate_every: int
    ) -> Iterator[float]:
        """Creates `count` objects, then changes them in turn; every `recreate_every` changes it recreates one."""
        for number in range(count):
            self._create(kind, path, body(number))
            yield rest
        for turn in itertools.count():
            name = f"{path}/{kind.replace('_', '-')}-{turn % count}"
            if turn % recreate_every == recreate_every - 1:
                self._delete(kind, name, propagationPolicy="Background")
                self._create(kind, path, body(turn % count))
            else:
                with self.counted(f"{kind}_rewritten"):
                    self._api.patch(name, {"metadata": {"annotations": {"turn": str(turn)}}})
            yield rest

    def _bombs(self) -> Iterator[float]:
        """Writes jobs of 1.2 MB of `{}`: smaller ones if a busy server does not process them in its time limit."""

        def body(number: int) -> bytes:
            return large_job(f"bomb-{number}", BOMB_VALUES >> min(self.counts["bomb_504"], _MAX_HALVINGS))

        return self._rewritten("bomb", TFJOBS, self._amounts.bombs, body, _BOMB_SECONDS, 1)

    def _largest(self) -> Iterator[float]:
        def body(number: int) -> bytes:
            return large_job(f"large-{number}", LARGEST_VALUES, "y" * LARGEST_TEXT)

        return self._rewritten("large", TFJOBS, self._amounts.largest, body, _LARGEST_SECONDS, 10)

    def _heavy_pods(self) -> Iterator[float]:
        """Writes ordinary pods that never run, with as many tolerations as fit."""
        return self._rewritten("heavy_pod", PODS, self._amounts.heavy_pods, heavy_pod, _HEAVY_SECONDS, 10)

    def _config_maps(self) -> Iterator[float]:
        """Writes ConfigMaps with the label by which the controller selects, and very many others."""
        amount = self._amounts.config_maps
        return self._rewritten("config_map", CONFIG_MAPS, amount, labelled_config_map, _HEAVY_SECONDS, 10)

    def _gangs(self) -> Iterator[float]:
        """Writes Gangs without pods, of half of the quota, all of it, and far more. All filters are different.

        Some remain, so that they reach the starvation timeout.
        """
        shares = (1, 2, 4)
        for number in range(_LASTING):
            gang = worst_gang(-1 - number, self._amounts.cpus // 2 * shares[number % len(shares)], f"lasting-{number}")
            self._create("gang", GANGS, gang)
        for number in itertools.count():
            cpus = self._amounts.cpus // 2 * shares[number % len(shares)]
            self._create("gang", GANGS, worst_gang(number, min(cpus, 10_000)))
            old = f"{GANGS}/worst-{number - self._amounts.gangs}"
            self._delete("gang", old)
            yield _GANG_SECONDS

    def _gang_jobs(self) -> Iterator[float]:
        for number in itertools.count():
            body = _job(f"gang-job-{number}", workers=3, gang={"enabled": True}, pod_spec=_worst_filters(f"j{number}"))
            self._create("gang_job", TFJOBS, body)
            old = f"{TFJOBS}/gang-job-{number - self._amounts.gang_jobs}"
            self._delete("gang_job", old, propagationPolicy="Background")
            yield _GANG_JOB_SECONDS

    def _jobs(self) -> Iterator[float]:
        """Writes small jobs that fail at once, to cause many pods, events and logs."""
        rng = random.Random(1)  # noqa: S311 -- to be repeated, not to be kept secret
        progress = {"minWorkers": 1, "maxWorkers": 2, "progress": {"pattern": _WORST_PATTERN}}
        for number in itertools.count():
            if rng.random() < 0.8:
                fields = {"autoscaling": progress} if number % 5 == 0 else {}
                body, path = _job(f"job-{number}", workers=1, **fields), TFJOBS
            else:
                body, path = _trainjob(f"job-{number}"), TRAINJOBS
            self._create("job", path, body)
            if number >= self._amounts.jobs:
                # The old job is of one of the kinds.
                for path in (TFJOBS, TRAINJOBS):
                    self._delete("job", f"{path}/job-{number - self._amounts.jobs}", propagationPolicy="Background")
            yield _FIRST_JOB_SECONDS if number < self._amounts.jobs else _JOB_SECONDS

    def _pods(self) -> Iterator[float]:
        """Writes pods with the labels of members of the Gangs without pods, so that these keep their age."""
        for number in itertools.count():
            self._create("pod", PODS, _pod(number))
            old = f"{PODS}/pod-{number - self._amounts.pods}"
            self._delete("pod", old, gracePeriodSeconds=0)
            yield _POD_SECONDS


def attack(kubeconfig: Path, amounts: Amounts, is_complete: Event, over: Event, results: Connection) -> None:
    """Writes until `over`. Runs in a separate process."""
    tenant = Tenant(Api.from_kubeconfig(kubeconfig), amounts, is_complete, over)
    tenant.run(tenant.kinds(), results)


def _template(**spec: Any) -> Object:
    requests = {"cpu": "1m", "memory": "1Mi"}
    container = {"name": "tensorflow", "image": "localhost/none", "resources": {"requests": requests}}
    notes = {RUN_SECONDS: "3", EXIT_CODE: "1"}
    return {"metadata": {"annotations": notes}, "spec": {"restartPolicy": "Never", "containers": [container], **spec}}


def _job(name: str, *, workers: int = 0, pod_spec: Object | None = None, **spec: Any) -> Object:
    template = _template(**(pod_spec or {}))
    counts = {"MASTER": 1, "WORKER": workers}
    replicas = [
        {"tfReplicaType": kind, "replicas": count, "template": template} for kind, count in counts.items() if count
    ]
    body = {"replicaSpecs": replicas, "tfImage": "localhost/tensorflow", **spec}
    return {"apiVersion": "kubeflow.org/v1alpha1", "kind": "TFJob", "metadata": {"name": name}, "spec": body}


def _trainjob(name: str) -> Object:
    resources = {"requests": {"cpu": "1m", "memory": "1Mi"}}
    trainer = {"image": "localhost/none", "command": ["train"], "numProcPerNode": 1, "resourcesPerNode": resources}
    spec = {"framework": "torch", "numNodes": 1, "trainer": trainer}
    return {"apiVersion": "kubeflow.org/v2alpha1", "kind": "TrainJob", "metadata": {"name": name}, "spec": spec}


def large_job(name: str, values: int, text: str = "") -> bytes:
    """Returns a TFJob whose template contains that many empty objects, and a text."""
    job = _job(name)
    job["spec"]["replicaSpecs"][0]["template"]["spec"]["tolerations"] = [{}] * values
    if text:
        notes = {**_template()["metadata"]["annotations"], "long": text}
        job["spec"]["replicaSpecs"][0]["template"]["metadata"] = {"annotations": notes}
    return _compact(job)


def heavy_pod(number: int) -> bytes:
    spec = {
        "schedulerName": "none",
        "containers": [{"name": "main", "image": "localhost/none", "resources": {"requests": {"cpu": "1m"}}}],
        "tolerations": [{"key": "a"}] * _TOLERATIONS,
    }
    return _compact({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"heavy-pod-{number}"}, "spec": spec})


def labelled_config_map(number: int) -> bytes:
    labels = {"kubeflow.org": "", **{f"a{index:05}": "" for index in range(_LABELS)}}
    return _compact(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"config-map-{number}", "labels": labels}}
    )


def _compact(body: Object) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()


def _worst_filters(mark: str) -> Object:
    """Returns filters of which only the last term and the last toleration match, after all others were evaluated."""
    terms = [
        _term("kubernetes.io/hostname", [f"{mark}-{n}-{index}" for index in range(4)]) for n in range(MAX_TERMS - 1)
    ]
    tolerations = [{"key": f"{mark}-{number}", "operator": "Exists"} for number in range(MAX_ENTRIES - 1)]
    selector = {"nodeSelectorTerms": [*terms, _term("kubernetes.io/os", [mark, "linux"])]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}}
    return {"affinity": affinity, "tolerations": tolerations}


def _term(key: str, values: list[str]) -> Object:
    return {"matchExpressions": [{"key": key, "operator": "In", "values": values}]}


def worst_gang(number: int, cpus: int, name: str = "") -> Object:
    """Returns a Gang of that many CPUs, as large and as slow to place as the CRD accepts."""
    members = [_member(f"g{number}-{kind}", f"{chr(ord('a') + kind)}", cpus // MAX_KINDS) for kind in range(MAX_KINDS)]
    return {
        "apiVersion": "scheduling.kubeflow.org/v1alpha1",
        "kind": "Gang",
        "metadata": {"name": name or f"worst-{number}"},
        "spec": {"members": members, "priority": URGENT_PRIORITY},
    }


def _member(mark: str, name: str, count: int) -> Object:
    filters = _worst_filters(mark)
    return {
        "name": name,
        "count": max(1, count),
        "priorityClassName": URGENT,
        "resources": {"cpu": "1"},
        "tolerations": filters["tolerations"],
        "nodeAffinity": filters["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"],
    }


def _pod(number: int) -> Object:
    labels = {
        GANG_LABEL: f"worst-{number * int(_POD_SECONDS / _GANG_SECONDS)}",
        MEMBER_LABEL: "a-0",
        ATTEMPT_LABEL: "1",
    }
    container = {"name": "main", "image": "localhost/none", "resources": {"requests": {"cpu": "1m"}}}
    spec = {"schedulerName": "gang-scheduler", "containers": [container]}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": f"pod-{number}", "labels": labels}, "spec": spec}
