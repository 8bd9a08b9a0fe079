"""Starts a cluster with a dozen jobs in all states, and the dashboard that shows them.

The jobs run, wait as gangs, fail, are elastic, suspended or finished. Ctrl-C ends the dashboard; the cluster stays, so
that a second call shows the same jobs, until `make cluster-down NAME=demo-dashboard`. Programs of the jobs only print:
metrics as a training would print them, or an error.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from demo import autoscale
from demo.autoscale import GPU
from demo.ownstage import start_programs
from demo.play import Scene
from demo.screen import Check
from demo.stage import Object, Stage, end_command, has_condition, wait
from localcluster.controlplane import ControlPlane
from localcluster.images import BASE
from tfjob_controller.kubectl.cli import main as kubectl_tfjob

_SYSTEM = "tfjob-system"
CLUSTER = replace(
    autoscale.CLUSTER,
    name="demo-dashboard",
    images=(BASE,),
    # Its Lease shows that it runs, as in a cluster; pages would doubt that otherwise.
    controller=(*autoscale.CLUSTER.controller, "--leader-elect", f"--leader-elect-lease-namespace={_SYSTEM}"),
)
# The teams' namespaces.
LANGUAGE, VISION = "language", "vision"
RESOURCE_PATHS = {
    "TFJob": "/apis/kubeflow.org/v1alpha1/namespaces/{}/tfjobs",
    "TrainJob": "/apis/kubeflow.org/v2alpha1/namespaces/{}/trainjobs",
}
_TIMEOUT_SECONDS = 120.0
METRICS = ("loss", "accuracy", "lr", "throughput", "step")
# It learns, more slowly towards its end, and prints what a log reader needs.
TRAINS = """
import math, random, time
for step in range(1, {steps} + 1):
    loss = 0.21 + 2.3 * math.exp(-step / {rate}) + 0.09 * random.random() * math.exp(-step / 600)
    lr = 3e-4 * min(1, step / 60) * (0.55 + 0.45 * math.cos(min(1, step / 900) * math.pi))
    speed = 1480 + 40 * random.random() - 260 * (step % 97 == 0)
    values = f"loss={{loss:.4f}} accuracy={{1 - loss / 3:.4f}} lr={{lr:.2e}} throughput={{speed:.0f}}"
    print(f"step={{step}} {{values}}", flush=True)
    time.sleep({pause})
"""
FOREVER = TRAINS.format(steps=1_000_000, pause=0.5, rate=160)
FASTER = TRAINS.format(steps=1_000_000, pause=0.5, rate=90)
BRIEFLY = TRAINS.format(steps=40, pause=0.1, rate=160)
LOSES_ITS_DATA = "import time\nprint('reading /data/train.csv', flush=True)\ntime.sleep(2)\nopen('/data/train.csv')"
# Exit code 137 is that of a program that was killed, so that it is tried again.
IS_KILLED = "import sys, time\nprint('step=1 loss=2.3', flush=True)\ntime.sleep(5)\nsys.exit(137)"
# The gang that runs, and that those which wait come after.
FIRST_GANG = "llama-finetune"


def run(stage: Stage) -> list[Check]:
    """Serves the dashboard until Ctrl-C."""
    kubeconfig = stage.kubectl.kubeconfig
    stage.screen.step("kubectl tfjob dashboard --all-namespaces")
    stage.screen.detail(f"export KUBECONFIG={kubeconfig}     # for kubectl")
    stage.screen.detail(f"{end_command(stage.folder)}     # stops all of it")
    os.environ["KUBECONFIG"] = str(kubeconfig)
    raise SystemExit(kubectl_tfjob(["dashboard", "--all-namespaces", "--no-browser"]))


def fill(plane: ControlPlane, stage: Stage) -> None:
    for namespace in (_SYSTEM, LANGUAGE, VISION):
        stage.api.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    start_programs(plane, stage.screen, CLUSTER)
    create_jobs(stage)


def create_jobs(stage: Stage) -> None:
    """Creates the jobs; later ones wait for the first gang, whose GPUs they would get on a busy machine."""
    created = jobs()
    stage.screen.step(f"kubectl create: {', '.join(job['metadata']['name'] for job in created)}")
    for job in created:
        namespace, name = job["metadata"]["namespace"], job["metadata"]["name"]
        path = RESOURCE_PATHS[job["kind"]].format(namespace)
        stage.api.create(path, job)
        if name == FIRST_GANG:
            _await_capacity(stage, f"{path}/{name}")


def _await_capacity(stage: Stage, path: str) -> None:
    wait(lambda: has_condition(stage.api.get(path), "Scheduled"), _TIMEOUT_SECONDS, f"{path} to get capacity")


def jobs() -> list[Object]:
    """Returns the manifests in the order in which they are created: those that hold GPUs before those that wait."""
    gang = {"enabled": True}
    bounds = {"minNodes": 1, "maxNodes": 3}
    return [
        trainjob(VISION, "resnet50-imagenet", FOREVER, numNodes=2),
        tfjob(VISION, "mnist", FOREVER, workers=2),
        trainjob(LANGUAGE, FIRST_GANG, FOREVER, numNodes=2, gang=gang, gpus=1),
        trainjob(LANGUAGE, "bert-elastic", FASTER, numNodes=1, framework="torch", elasticPolicy=bounds),
        trainjob(VISION, "vit-baseline", BRIEFLY),
        tfjob(LANGUAGE, "wide-and-deep", BRIEFLY, workers=1),
        trainjob(LANGUAGE, "tokenizer-ablation", LOSES_ITS_DATA),
        trainjob(LANGUAGE, "whisper-small", IS_KILLED, maxRestarts=100),
        trainjob(VISION, "sdxl-lora", FOREVER, image="localhost/sdxl-trainer:2"),
        trainjob(VISION, "clip-nightly", FOREVER, suspend=True),
        trainjob(LANGUAGE, "mixtral-sft", FOREVER, numNodes=3, gang=gang, gpus=1),
        trainjob(VISION, "segment-anything", FOREVER, numNodes=3, gang={**gang, "priority": -1}, gpus=1),
        trainjob(LANGUAGE, "llama-405b", FOREVER, numNodes=64, gang=gang, gpus=1),
    ]


def trainjob(namespace: str, name: str, program: str, *, gpus: int = 0, image: str = BASE, **spec: Any) -> Object:
    trainer = {"image": image, "command": ["python3", "-c", program], "resourcesPerNode": _resources(gpus)}
    return {
        "apiVersion": "kubeflow.org/v2alpha1",
        "kind": "TrainJob",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"framework": "plain", "metrics": {"names": METRICS}, **spec, "trainer": trainer},
    }


def tfjob(namespace: str, name: str, program: str, *, workers: int) -> Object:
    container = {
        "name": "tensorflow",
        "image": BASE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-c", program],
        "resources": _resources(0),
    }
    template = {"spec": {"containers": [container], "terminationGracePeriodSeconds": 1}}
    replicas = [
        {"tfReplicaType": "MASTER", "replicas": 1, "template": template},
        {"tfReplicaType": "WORKER", "replicas": workers, "template": template},
    ]
    return {
        "apiVersion": "kubeflow.org/v1alpha1",
        "kind": "TFJob",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"replicaSpecs": replicas},
    }


def _resources(gpus: int) -> Object:
    """Returns resources that leave the processors of a small machine to all jobs; GPUs are simulated."""
    requests = {"cpu": "10m", "memory": "16Mi"}
    return {"requests": requests, **({"limits": {GPU: str(gpus)}} if gpus else {})}


SCENE = Scene(target="demo-dashboard", description=__doc__ or "", cluster=CLUSTER, run=run, fill=fill)
