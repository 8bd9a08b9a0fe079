"""Whole TFJobs (a part of `make bench-gang`): controller, Job controller and scheduler together.

- `tfjobs_bound`: 100 TFJobs of 10 replicas on 200 nodes; seconds from the first create to the last pod bound, with all
  of them as gangs. Baseline: the same jobs and controller without gangs, bound by the stock scheduler. Reported.

Every round has its own control plane, since deleting 4,000 objects takes longer than starting one. The controller has
`--qps=0`, kube-controller-manager 1,000 requests/s and kube-scheduler 5,000.
"""

from __future__ import annotations

import contextlib
from typing import Any

from bench.controller import controller
from bench.gangdriver import Driver
from bench.gangplane import Planes, gang_scheduler, plane
from bench.gangworkload import new_namespace
from bench.jobs import TFJOBS, replica_spec, tfjob
from bench.report import ROUNDS, progress, report, size
from bench.stage import rest

JOBS = size(100, tiny=2)
REPLICAS = size(10, tiny=3)
NODES = size(200, tiny=2)

Object = dict[str, Any]


def report_tfjobs(_: Planes) -> bool:
    """Prints the figure."""
    ours, stock = [], []
    for number in range(1, ROUNDS + 1):
        stock.append(seconds("off"))
        ours.append(seconds("always"))
        progress(f"TFJobs, round {number} of {ROUNDS}: {ours[-1]:.2f} s as gangs, {stock[-1]:.2f} s without")
    return report("tfjobs_bound", "s", ours, baselines=stock, jobs=JOBS, replicas=REPLICAS, nodes=NODES)


def seconds(gang_scheduling: str) -> float:
    """Returns the seconds of a round; `gang_scheduling` is the controller's flag."""
    with contextlib.ExitStack() as open_:
        found = open_.enter_context(plane(f"tfjobs-{gang_scheduling}"))
        found.set_nodes(NODES)
        if gang_scheduling != "off":
            open_.enter_context(gang_scheduler(found))
        namespace = new_namespace(found)
        flags = [f"--namespace={namespace}", "--qps=0", f"--gang-scheduling={gang_scheduling}"]
        open_.enter_context(controller(found.control.kubeconfig, *flags)).wait_ready()
        driver = open_.enter_context(Driver(found, namespace, label="tf_job_name"))
        rest(found.api)
        driver.begin()
        driver.create_all(TFJOBS.format(namespace), [manifest(number) for number in range(JOBS)])
        return driver.round(JOBS * REPLICAS).total


def manifest(number: int) -> Object:
    """Returns a TFJob with a master and workers of one CPU each."""
    found = tfjob(f"job-{number:03d}", replica_spec("MASTER", 1), replica_spec("WORKER", REPLICAS - 1))
    for spec in found["spec"]["replicaSpecs"]:
        (container,) = spec["template"]["spec"]["containers"]
        container["resources"] = {"requests": {"cpu": "1"}}
    return found
