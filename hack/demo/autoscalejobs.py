"""The two jobs of the demo of autoscaling, based on a sample, and the display of the pods on each node. Pure."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import yaml

from demo.follow import replica_of
from demo.gangjobs import holds_gpu, is_running
from demo.stage import NODES, Object

GPU = "example.com/gpu"
GPUS_PER_NODE = 2
FIRST, SECOND = "first", "second"
# Each worker needs a GPU; parameter servers need none.
LEAST, MOST = 2, NODES * GPUS_PER_NODE
# As many as fit when the first job has its minimum.
SECOND_WORKERS = MOST - LEAST
# More than it completes during the demo: the second job shows how a job ends.
FIRST_STEPS = 20_000
SECOND_STEPS = 200
STEP_SECONDS = "0.1"
_ALL_STEPS = re.compile(rf"(\d+) of {FIRST_STEPS} by all")
_SHOWN_EVENTS = ("Resized", "AutoscalerOverridden")


def manifests(sample: str) -> dict[str, list[Object]]:
    """Returns ConfigMap and TFJob of each job, from the text of manifests/samples/train-elastic.yaml."""
    config_map, job = yaml.safe_load_all(sample)
    return {
        FIRST: [config_map, _job(job, FIRST, (LEAST, MOST, MOST), FIRST_STEPS)],
        SECOND: [_job(job, SECOND, (SECOND_WORKERS,) * 3, SECOND_STEPS)],
    }


def _job(sample: Object, name: str, workers: tuple[int, int, int], steps: int) -> Object:
    """Returns a TFJob; `workers` are the minimum, the number at the start, and the maximum."""
    job = copy.deepcopy(sample)
    least, at_first, most = workers
    job["metadata"]["name"] = name
    spec = job["spec"]
    spec["gang"] = {"enabled": True}
    spec["autoscaling"] |= {"minWorkers": least, "maxWorkers": most, "totalSteps": steps}
    for replica_spec in spec["replicaSpecs"]:
        if replica_spec["tfReplicaType"] == "WORKER":
            replica_spec["replicas"] = at_first
            container = replica_spec["template"]["spec"]["containers"][0]
            container["resources"] = {"requests": {"cpu": "10m", "memory": "400Mi"}, "limits": {GPU: "1"}}
            container["env"] = [{"name": "STEP_SECONDS", "value": STEP_SECONDS}]
    return job


def logged_steps(log: str) -> int:
    """Returns the steps of all workers according to the last such line; 0 without one."""
    steps = _ALL_STEPS.findall(log)
    return int(steps[-1]) if steps else 0


@dataclass(frozen=True, slots=True)
class Holder:
    """A pod on a node."""

    node: str
    job: str
    replica: str
    is_running: bool
    is_leaving: bool

    @property
    def has_gpu(self) -> bool:
        return self.replica.startswith("worker")

    @property
    def text(self) -> str:
        if self.is_leaving:
            return f"{self.replica} (leaves)"
        return self.replica if self.is_running else f"{self.replica} (starts)"


def holders_of(pods: Iterable[Object]) -> list[Holder]:
    """Returns the pods that are bound and have not ended, sorted by node, job and replica."""
    holders = [
        Holder(
            node=pod["spec"]["nodeName"],
            job=pod["metadata"]["labels"]["tf_job_name"],
            replica=replica_of(pod),
            is_running=is_running(pod),
            is_leaving="deletionTimestamp" in pod["metadata"],
        )
        for pod in pods
        if "tf_job_name" in pod["metadata"].get("labels", {}) and holds_gpu(pod)
    ]
    return sorted(holders, key=lambda holder: (holder.node, holder.job, holder.replica))


def running(holders: Sequence[Holder], job: str, role: str = "") -> int:
    """Returns how many replicas of a job run and are not being deleted."""
    return sum(
        holder.job == job and holder.is_running and not holder.is_leaving and holder.replica.startswith(role)
        for holder in holders
    )


def line(holders: Sequence[Holder], nodes: Sequence[str]) -> str:
    """Returns a line such as `node-1 [first: ps-0 worker-0]   node-2 [first: worker-2 | 2 free]`."""
    return "   ".join(f"{node} [{_on_node(holders, node)}]" for node in nodes)


def _on_node(holders: Sequence[Holder], node: str) -> str:
    here = [holder for holder in holders if holder.node == node]
    parts = [
        f"{job}: {' '.join(holder.text for holder in here if holder.job == job)}"
        for job in dict.fromkeys(holder.job for holder in here)
    ]
    free = GPUS_PER_NODE - sum(holder.has_gpu for holder in here)
    return " | ".join([*parts, *([f"{free} free"] if free > 0 else [])])


@dataclass(slots=True)
class Shown:
    """What was already shown."""

    events: set[str] = field(default_factory=set)
    line: str = ""

    def news(self, events: Iterable[Object]) -> list[str]:
        """Returns the new events about resizes, oldest first."""
        new = [event for event in events if event["reason"] in _SHOWN_EVENTS]
        new = [event for event in new if event["metadata"]["uid"] not in self.events]
        self.events.update(event["metadata"]["uid"] for event in new)
        new.sort(key=lambda event: str(event.get("eventTime")))
        return [f"{event['reason']} {event['regarding']['name']}: {event['note']}" for event in new]

    def is_new(self, line: str) -> bool:
        before, self.line = self.line, line
        return line != before
