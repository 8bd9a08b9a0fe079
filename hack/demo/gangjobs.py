"""The two jobs of the gang demo, and how many GPUs each holds, and for how long without running. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]

GPU = "nvidia.com/gpu"
GPUS_PER_NODE = 4

JOBS = ("blue", "red")
# A master and its workers, one GPU each: all GPUs of the cluster.
REPLICAS = 8
REQUESTS = {"cpu": "500m", GPU: "1"}


def manifest(name: str, *, is_gang: bool) -> Object:
    """Returns a TFJob of REPLICAS pods. Its image is never pulled, since nodes are simulated."""
    template = {
        "spec": {
            "containers": [
                {
                    "name": "tensorflow",
                    "image": "localhost/tensorflow",
                    "resources": {"requests": REQUESTS, "limits": {GPU: "1"}},
                }
            ]
        }
    }
    replicas = [
        {"tfReplicaType": "MASTER", "replicas": 1, "template": template},
        {"tfReplicaType": "WORKER", "replicas": REPLICAS - 1, "template": template},
    ]
    spec = {**({"gang": {"enabled": True}} if is_gang else {}), "replicaSpecs": replicas}
    return {"apiVersion": "kubeflow.org/v1alpha1", "kind": "TFJob", "metadata": {"name": name}, "spec": spec}


def by_job(pods: Sequence[Object]) -> dict[str, list[Object]]:
    """Returns the pods of each job that hold a GPU."""
    holders: dict[str, list[Object]] = {name: [] for name in JOBS}
    for pod in pods:
        name = pod["metadata"].get("labels", {}).get("tf_job_name", "")
        if name in holders and holds_gpu(pod):
            holders[name].append(pod)
    return holders


def holds_gpu(pod: Object) -> bool:
    has_ended = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
    return bool(pod["spec"].get("nodeName")) and not has_ended


def is_running(pod: Object) -> bool:
    return bool(pod.get("status", {}).get("phase") == "Running")


def bar(held: Mapping[str, int]) -> str:
    """Returns a line such as `blue ####....  4 of 8 GPUs      red ####....  4 of 8 GPUs`."""
    parts = [
        f"{name:>4} {'█' * count}{'·' * (REPLICAS - count)} {count} of {REPLICAS} GPUs" for name, count in held.items()
    ]
    return "    ".join(parts)


@dataclass(slots=True)
class Ledger:
    """The observations so far. Times are those passed to `look`, in seconds."""

    held: dict[str, int] = field(default_factory=dict)
    complete_at: dict[str, float] = field(default_factory=dict)
    """When all replicas of a job were running for the first time."""
    in_vain_seconds: float = 0.0
    """The longest time that a job held some of its GPUs before it had all of them."""
    _since: dict[str, float] = field(default_factory=dict)

    def look(self, pods: Sequence[Object], now: float) -> bool:
        """Records the pods; returns whether a number has changed."""
        holders = by_job(pods)
        held = {name: len(members) for name, members in holders.items()}
        for name, members in holders.items():
            if len(members) == REPLICAS and all(is_running(pod) for pod in members):
                self.complete_at.setdefault(name, now)
            self._judge(name, held[name], now)
        is_changed = held != self.held
        self.held = held
        return is_changed

    def _judge(self, name: str, count: int, now: float) -> None:
        if name in self.complete_at or count in (0, REPLICAS):
            self._since.pop(name, None)
            return
        self.in_vain_seconds = max(self.in_vain_seconds, now - self._since.setdefault(name, now))

    def is_deadlocked(self) -> bool:
        """Reports whether every job holds GPUs, none holds all that it needs, and none are free."""
        counts = self.held.values()
        return not self.complete_at and sum(counts) == REPLICAS and all(counts)
