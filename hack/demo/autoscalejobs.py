"""The two jobs of the demo of autoscaling, based on a sample, and the display of the pods on each node. Pure."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml
from rich.table import Table
from rich.text import Text

from demo.autoscalestage import GPU, GPUS_PER_NODE, NODES
from demo.gangjobs import holds_gpu, is_running
from demo.picture import replica_of

Object = dict[str, Any]

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
_STYLES = {FIRST: "cyan", SECOND: "magenta"}
_FREE = "·"


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
    for each in spec["replicaSpecs"]:
        if each["tfReplicaType"] == "WORKER":
            each["replicas"] = at_first
            container = each["template"]["spec"]["containers"][0]
            container["resources"] = {"requests": {"cpu": "10m", "memory": "400Mi"}, "limits": {GPU: "1"}}
            container["env"] = [{"name": "STEP_SECONDS", "value": STEP_SECONDS}]
    return job


def logged_steps(log: str) -> int:
    """Returns the steps of all workers according to the last such line; 0 without one."""
    said = _ALL_STEPS.findall(log)
    return int(said[-1]) if said else 0


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
    def words(self) -> str:
        if self.is_leaving:
            return f"{self.replica} (leaves)"
        return self.replica if self.is_running else f"{self.replica} (starts)"


def holders(pods: Iterable[Object]) -> list[Holder]:
    """Returns the pods that are bound and have not ended, sorted by node, job and replica."""
    found = [
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
    return sorted(found, key=lambda each: (each.node, each.job, each.replica))


def running(found: Sequence[Holder], job: str, role: str = "") -> int:
    """Returns how many replicas of a job run and are not being deleted."""
    return sum(
        each.job == job and each.is_running and not each.is_leaving and each.replica.startswith(role) for each in found
    )


def line(found: Sequence[Holder], nodes: Sequence[str]) -> str:
    """Returns a line such as `node-1 [first: ps-0 worker-0]   node-2 [first: worker-2 | 2 free]`."""
    return "   ".join(f"{node} [{_on_node(found, node)}]" for node in nodes)


def _on_node(found: Sequence[Holder], node: str) -> str:
    here = [each for each in found if each.node == node]
    parts = [
        f"{job}: {' '.join(each.words for each in here if each.job == job)}"
        for job in dict.fromkeys(each.job for each in here)
    ]
    free = GPUS_PER_NODE - sum(each.has_gpu for each in here)
    return " | ".join([*parts, *([f"{free} free"] if free > 0 else [])])


def table(found: Sequence[Holder], nodes: Sequence[str], notes: Mapping[str, str], elapsed_seconds: float) -> Table:
    """Returns a table for a terminal: a row for each node, a column for each GPU, and notes on each job below."""
    picture = Table(box=None, pad_edge=False, title=f"GPU assignments, {elapsed_seconds:.0f} s", title_style="dim")
    picture.add_column("Node", no_wrap=True)
    for number in range(1, GPUS_PER_NODE + 1):
        picture.add_column(f"GPU {number}", min_width=24, no_wrap=True)
    picture.add_column("without a GPU", no_wrap=True)
    for node in nodes:
        here = [each for each in found if each.node == node]
        cells = [_cell(each) for each in here if each.has_gpu]
        cells += [Text(_FREE, "dim")] * (GPUS_PER_NODE - len(cells))
        others = Text("  ").join(_cell(each) for each in here if not each.has_gpu)
        picture.add_row(node, *cells[:GPUS_PER_NODE], others)
    picture.caption = "\n".join(f"{job}: {note}" for job, note in notes.items() if note) or None
    picture.caption_justify = "left"
    return picture


def _cell(holder: Holder) -> Text:
    return Text(f"{holder.job} {holder.words}", _style(holder))


def _style(holder: Holder) -> str:
    colour = _STYLES.get(holder.job, "")
    return f"dim {colour}" if holder.is_leaving or not holder.is_running else colour


@dataclass(slots=True)
class Seen:
    """What was already shown."""

    events: set[str] = field(default_factory=set)
    line: str = ""

    def news(self, events: Iterable[Object]) -> list[str]:
        """Returns the new events about resizes, oldest first."""
        new = [each for each in events if each["reason"] in _SHOWN and each["metadata"]["uid"] not in self.events]
        self.events.update(each["metadata"]["uid"] for each in new)
        new.sort(key=lambda each: str(each.get("eventTime")))
        return [f"{each['reason']} {each['regarding']['name']}: {each['note']}" for each in new]

    def is_new(self, words: str) -> bool:
        before, self.line = self.line, words
        return words != before


_SHOWN = ("Resized", "AutoscalerOverridden")
