"""Whole jobs (a part of `make bench-gang`): controller, Job controller and scheduler together.

- `tfjobs_bound`: 100 TFJobs of 10 replicas on 200 nodes; seconds from the first create to the last pod bound, with all
  of them as gangs. Baseline: the same jobs and controller without gangs, bound by the stock scheduler. Reported.
- `trainjob_1x5000_on_5000`: the same for one TrainJob of 5,000 nodes, each of which fills one of 5,000 nodes. Two
  rounds, since each takes minutes.

Every round has its own control plane, since deleting 4,000 objects takes longer than starting one. The controller has
`--qps=0`, kube-controller-manager 1,000 requests/s and kube-scheduler 5,000.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.controller import controller
from bench.gangdriver import LIMIT_SECONDS, Driver
from bench.gangplane import NODE, Planes, gang_scheduler, plane
from bench.gangworkload import new_namespace
from bench.jobs import TFJOBS, TRAINJOBS, replica_spec, tfjob, trainjob
from bench.report import ROUNDS, progress, report, size
from bench.stage import rest

JOBS = size(100, tiny=2)
REPLICAS = size(10, tiny=3)
NODES = size(200, tiny=2)
LARGE = size(5000, tiny=4)
LARGE_ROUNDS = size(2, tiny=1)
LARGE_LIMIT_SECONDS = 900.0

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Workload:
    """Jobs, the label with a job's name of their pods, and the nodes on which all pods fit."""

    path: str
    manifests: Sequence[Object]
    label: str
    pods: int
    nodes: int
    node: Mapping[str, str]
    limit_seconds: float = LIMIT_SECONDS


def report_jobs(_: Planes) -> bool:
    """Prints the figures."""
    tfjobs = Workload(
        path=TFJOBS,
        manifests=[_tfjob(number) for number in range(JOBS)],
        label="tf_job_name",
        pods=JOBS * REPLICAS,
        nodes=NODES,
        node=NODE,
    )
    large = Workload(
        path=TRAINJOBS,
        manifests=[_trainjob(LARGE)],
        label="train_job_name",
        pods=LARGE,
        nodes=LARGE,
        node={**NODE, "cpu": "1"},
        limit_seconds=LARGE_LIMIT_SECONDS,
    )
    ours, stock = _rounds("TFJobs", tfjobs, ROUNDS)
    ok = report("tfjobs_bound", "s", ours, baselines=stock, jobs=JOBS, replicas=REPLICAS, nodes=NODES)
    ours, stock = _rounds("large TrainJob", large, LARGE_ROUNDS)
    return ok & report("trainjob_1x5000_on_5000", "s", ours, baselines=stock, pods=LARGE, nodes=LARGE)


def _rounds(name: str, workload: Workload, rounds: int) -> tuple[list[float], list[float]]:
    """Returns the seconds of all rounds: as gangs, and without."""
    ours, stock = [], []
    for number in range(1, rounds + 1):
        stock.append(seconds(workload, "off"))
        ours.append(seconds(workload, "always"))
        progress(f"{name}, round {number} of {rounds}: {ours[-1]:.2f} s as gangs, {stock[-1]:.2f} s without")
    return ours, stock


def seconds(workload: Workload, gang_scheduling: str) -> float:
    """Returns the seconds of a round; `gang_scheduling` is the controller's flag."""
    with contextlib.ExitStack() as open_:
        found = open_.enter_context(plane(f"jobs-{gang_scheduling}"))
        found.set_nodes(workload.nodes, workload.node)
        if gang_scheduling != "off":
            open_.enter_context(gang_scheduler(found))
        namespace = new_namespace(found)
        flags = [f"--namespace={namespace}", "--qps=0", f"--gang-scheduling={gang_scheduling}"]
        open_.enter_context(controller(found.control.kubeconfig, *flags)).wait_ready()
        driver = open_.enter_context(Driver(found, namespace, label=workload.label))
        rest(found.api)
        driver.begin()
        driver.create_all(workload.path.format(namespace), workload.manifests)
        return driver.round(workload.pods, workload.limit_seconds).total


def _tfjob(number: int) -> Object:
    """Returns a TFJob with a master and workers of one CPU each."""
    found = tfjob(f"job-{number:03d}", replica_spec("MASTER", 1), replica_spec("WORKER", REPLICAS - 1))
    for spec in found["spec"]["replicaSpecs"]:
        (container,) = spec["template"]["spec"]["containers"]
        container["resources"] = {"requests": {"cpu": "1"}}
    return found


def _trainjob(nodes: int) -> Object:
    """Returns a TrainJob with nodes of one CPU each."""
    found = trainjob("large", nodes)
    found["spec"]["trainer"]["resourcesPerNode"] = {"requests": {"cpu": "1"}}
    return found
