"""The simulator and the live programs make the same decisions about starts and resizes.

Everything is real but the kubelets: kube-apiserver, kube-scheduler, the Job controller, the TFJob controller, the gang
scheduler. The simulator determines the duration of a job: the live job ends when the simulated one did.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.cluster import Cluster
from helpers.controller import Jobs, running_controller
from helpers.gangscheduler import extender_url, running_gang_scheduler
from helpers.liveplay import Diary, Moment, Play, moments, restless
from localcluster.api import Api
from localcluster.fakekubelet import FakeKubelet
from localcluster.gangscheduler import GangScheduler
from tfjob_controller.simulator.cluster import GPU, ClusterShape
from tfjob_controller.simulator.model import SECOND, SimJob, read_trace

pytestmark = pytest.mark.cluster

SHAPE = ClusterShape(nodes=4, gpus_per_node=2)
POLICY = "gang+locality+autoscaling"
# One grows into the empty cluster, and gives way to others: to one that starts with a part of its workers, to two at
# once, and to a large one that has to wait for the end of another besides. A small one waits behind that.
TRACE = """\
arrival,ps,workers,min,max,work,gpus per worker
0,1,4,2,8,14000,1
600,1,4,2,4,5000,1
1000,0,1,1,2,950,1
1000,0,1,1,1,700,1
1400,1,6,6,8,3000,1
1600,0,1,1,1,500,1
6000,0,2,1,2,200,2
"""
# Simulated with the delays as shipped; live ones are shorter, and the live world rests for longer than any of them.
DELAY_SECONDS = 0.4
REST_SECONDS = 1.2
SIMULATED_REST_SECONDS = 61.0

Object = dict[str, Any]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    return path


@pytest.fixture
def live(gang_cluster: Cluster) -> Iterator[Jobs]:
    """Four nodes as the simulator has them, and all programs."""
    api = gang_cluster.api
    for node in api.list("/api/v1/nodes"):
        api.delete(f"/api/v1/nodes/{node['metadata']['name']}")
    room = {"cpu": "16", "memory": "64Gi", "ephemeral-storage": "64Gi", "pods": "110", GPU: str(SHAPE.gpus_per_node)}
    delays: dict[str, Any] = dict.fromkeys(("scale_down_after", "scale_up_after", "starvation_timeout"), DELAY_SECONDS)
    with (
        FakeKubelet(
            Api.from_kubeconfig(gang_cluster.kubeconfig), namespace="gangs", nodes=SHAPE.node_names(), resources=room
        ),
        running_controller(gang_cluster.kubeconfig, "gangs", autoscaling="on"),
        running_gang_scheduler(gang_cluster.kubeconfig, **delays) as scheduler,
        GangScheduler(gang_cluster.own, extender_url(scheduler)),
    ):
        jobs = Jobs(api, "gangs")
        yield jobs
        for job in jobs.all():
            jobs.delete(job["metadata"]["name"])


def simulated(trace: Path, jobs: list[SimJob]) -> list[Moment]:
    """By the command line, as a user would."""
    shape = [f"--nodes={SHAPE.nodes}", f"--gpus-per-node={SHAPE.gpus_per_node}", f"--policies={POLICY}"]
    command = [sys.executable, "-m", "tfjob_controller", "simulate", f"--trace={trace}", *shape, "-o", "json"]
    (found,) = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout)
    arrivals = [(job.arrival_ms / SECOND, job.name) for job in jobs]
    return moments(arrivals, found["policies"][POLICY]["decisions"])


def manifest(job: SimJob) -> Object:
    """The TFJob that the simulator means: what its pods request is in `simulator/cluster.py`."""
    specs = [{"tfReplicaType": "WORKER", "replicas": job.workers, "template": template(f"{4 * job.gpus}", job.gpus)}]
    if job.servers:
        specs.append({"tfReplicaType": "PS", "replicas": job.servers, "template": template("100m", 0)})
    autoscaling = {"minWorkers": job.min_workers, "maxWorkers": job.max_workers}
    spec = {"gang": {"enabled": True}, "autoscaling": autoscaling, "replicaSpecs": specs}
    return {"apiVersion": "kubeflow.org/v1alpha1", "kind": "TFJob", "metadata": {"name": job.name}, "spec": spec}


def template(cpu: str, gpus: int) -> Object:
    resources: Object = {"requests": {"cpu": cpu}, **({"limits": {GPU: str(gpus)}} if gpus else {})}
    container = {"name": "tensorflow", "image": "localhost/none", "resources": resources}
    return {"spec": {"containers": [container]}}


@pytest.mark.long
def test_live_and_simulated_starts_and_resizes_are_the_same(trace: Path, live: Jobs) -> None:
    jobs = read_trace(str(trace))
    found = simulated(trace, jobs)
    assert not restless(found, SIMULATED_REST_SECONDS), "this trace cannot be played live"
    kinds = [decision.what for moment in found for decision in moment.decisions]
    assert (kinds.count("start"), kinds.count("resize")) == (7, 16), "the trace is about something else now"
    with Diary(live.api, live.namespace) as diary:
        Play(live, diary, {job.name: manifest(job) for job in jobs}, REST_SECONDS).run(found)
        assert len(diary.entries()) == len(kinds)
