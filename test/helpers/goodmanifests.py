"""Valid TFJobs, which the API server and the controller must accept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from helpers.manifests import Manifest, container, master, parameter_servers, pod_template, tfjob, workers
from tfjob_controller.api.common.managedby import MANAGED_HERE


@dataclass(frozen=True, slots=True)
class Good:
    name: str
    manifest: Manifest


def _seed_job() -> Manifest:
    """Returns the job of upstream's user guide unchanged: replicas before the type, and a PS without template."""
    template = {
        "spec": {
            "containers": [{"image": "gcr.io/tf-on-k8s-dogfood/tf_sample:dc944ff", "name": "tensorflow"}],
            "restartPolicy": "OnFailure",
        }
    }
    return tfjob(
        {"replicas": 1, "tfReplicaType": "MASTER", "template": template},
        {"replicas": 1, "tfReplicaType": "WORKER", "template": template},
        {"replicas": 2, "tfReplicaType": "PS"},
    )


def _seed_answer() -> Manifest:
    """Returns a spec as upstream's controller wrote it back: with nulls, and an id that begins with a digit."""

    def template(image: str, **fields: Any) -> Manifest:
        each = {"image": image, "name": "tensorflow", "resources": {}, **fields}
        return {"metadata": {"creationTimestamp": None}, **pod_template(each, restartPolicy="OnFailure")}

    sample = "gcr.io/tf-on-k8s-dogfood/tf_sample:dc944ff"
    server = template(
        "tensorflow/tensorflow:1.3.0", volumeMounts=[{"mountPath": "/ps-server", "name": "ps-config-volume"}]
    )
    entries = [
        {"replicas": 1, "template": template(sample), "tfPort": 2222, "tfReplicaType": "MASTER"},
        {"replicas": 1, "template": template(sample), "tfPort": 2222, "tfReplicaType": "WORKER"},
        {"replicas": 2, "template": server, "tfPort": 2222, "tfReplicaType": "PS"},
    ]
    return tfjob(*entries, RuntimeId="76no", tfImage="tensorflow/tensorflow:1.3.0")


_CHIEF_WORKER_1 = {"chief": {"replicaName": "WORKER", "replicaIndex": 1}}

GOOD_MANIFESTS = (
    Good("the-users-example-job", _seed_job()),
    Good("what-upstream-wrote-back", _seed_answer()),
    Good("no-workers-yet", tfjob(master(), workers(0), parameter_servers(0))),
    Good("most-replicas", tfjob(master(), workers(1000), parameter_servers(1000))),
    Good("type-left-out-is-master", tfjob({"template": pod_template(container())})),
    Good("chief-exists-by-worker-replicas", tfjob(workers(1), terminationPolicy=_CHIEF_WORKER_1, workerReplicas=2)),
    Good(
        "chief-is-a-ps-with-its-own-program",
        tfjob(
            parameter_servers(template=pod_template(container())), terminationPolicy={"chief": {"replicaName": "PS"}}
        ),
    ),
    Good("termination-policy-without-chief", tfjob(terminationPolicy={})),
    Good("ps-template-without-tensorflow", tfjob(master(), parameter_servers(template=pod_template(container("log"))))),
    Good("ps-without-an-image", tfjob(master(), parameter_servers(template=pod_template({"name": "tensorflow"})))),
    Good(
        "null-in-a-template",
        tfjob(master(template=pod_template(container(env=None, imagePullPolicy=None), volumes=None))),
    ),
    Good("ports-at-the-ends", tfjob(master(tfPort=1), workers(tfPort=65535))),
    Good("name-with-dots-and-digits", tfjob(name="1." + "a" * 63 + ".b")),
    Good("autoscaling-of-one-size", tfjob(workers(2), autoscaling={"minWorkers": 2, "maxWorkers": 2})),
    Good("gang-and-autoscaling-agree", tfjob(workers(2), gang={"minWorkers": 2}, autoscaling={"maxWorkers": 1000})),
    Good("autoscaling-within-a-gang", tfjob(workers(1), gang={"minWorkers": 0}, autoscaling={"maxWorkers": 3})),
    Good("checkpoints-by-default", tfjob(checkpoint={"storageUri": "pvc://claim/runs"})),
    *(
        Good(f"pattern {pattern}", tfjob(workers(2), autoscaling={"maxWorkers": 2, "progress": {"pattern": pattern}}))
        for pattern in (
            r"^\[\d{4}.*step=(\d+)$",
            r"global_step/sec.*[])(|]([^] ]*)",
            "(.*)",
        )
    ),
    Good(
        "everything",
        tfjob(
            workerReplicas=3,
            tfImage="tensorflow/tensorflow",
            schedulerName="gang",
            cleanPodPolicy="None",
            ttlSecondsAfterFinished=0,
            activeDeadlineSeconds=2**31 - 1,
            backoffLimit=0,
            suspend=True,
            checkpoint={
                "storageUri": "s3://bucket/job",
                "path": "/ckpt/a.b",
                "secretRef": {"name": "keys"},
                "env": [{"name": "AWS_REGION", "value": "eu-1"}],
                "keep": 1000,
                "settleSeconds": 1,
                "maxBandwidth": "50Mi",
                "perNode": False,
            },
            managedBy=MANAGED_HERE,
            failurePolicy="AnyReplica",
            priorityClassName="high",
            terminationPolicy={"chief": {}},
            gang={"enabled": True, "minWorkers": 3, "timeoutSeconds": 1, "onTimeout": "Fail", "priority": -1},
            autoscaling={
                "minWorkers": 3,
                "maxWorkers": 9,
                "resize": "Restart",
                "totalSteps": 2**53 - 1,
                "progress": {"pattern": "step ([0-9]+)"},
            },
        ),
    ),
    Good("another-controllers", tfjob(managedBy="kueue.x-k8s.io/multikueue")),
)
