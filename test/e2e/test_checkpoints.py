"""Checkpoints outlive the pods that wrote them: a job whose pod is lost continues from the last one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from helpers.kubectl import Kubectl
from helpers.manifests import container, pod_template, tfjob, workers
from helpers.poll import eventually
from helpers.realtrainjobs import TrainJobs
from helpers.s3server import S3Server
from helpers.trainmanifests import trainjob
from localcluster import images

pytestmark = pytest.mark.nodes

SECRET, BUCKET = "storage", "checkpoints"
# It stops at step 30 unless it was resumed, and needs no framework.
PROGRAM = """
import os, pathlib, signal
folder, resume = (pathlib.Path(os.environ[name]) for name in ("TRAINJOB_CHECKPOINT_DIR", "TRAINJOB_RESUME_FROM"))
step = int((resume / "step").read_text()) if resume.exists() else 0
print(f"begins at step {step}", flush=True)
is_resumed = step > 0
while step < 40:
    step += 1
    if step % 10 == 0:
        unfinished, whole = folder / ".unfinished", folder / f"checkpoint-{step}"
        unfinished.mkdir()
        (unfinished / "step").write_text(str(step))
        (unfinished / "weights").write_bytes(bytes([step]) * 100_000)
        (unfinished / ".done").touch()
        unfinished.rename(whole)
    if step == 30 and not is_resumed:
        print("step=34", flush=True)  # as if it had gone on until its node was lost
        signal.pause()
"""

Object = dict[str, Any]


def saved(s3: S3Server) -> list[str]:
    """The names of the checkpoints that exist in the bucket, the oldest first. Each has a manifest, written last."""
    client = s3.client()
    listed = client.list_objects_v2(Bucket=BUCKET, Prefix="resumes/manifests/").get("Contents", ())
    manifests = [client.get_object(Bucket=BUCKET, Key=each["Key"])["Body"].read() for each in listed]
    return [json.loads(each)["name"] for each in manifests]


def test_a_job_whose_pod_is_lost_goes_on_from_its_last_checkpoint(
    trainjobs: TrainJobs, kubectl: Kubectl, s3: S3Server
) -> None:
    trainjobs.give(images.BASE, images.INITIALIZER)
    checkpoint = {"storageUri": f"s3://{BUCKET}/resumes", "secretRef": {"name": SECRET}, "keep": 2}
    trainer = {"image": images.BASE, "command": ["python3", "-c", PROGRAM]}
    job = trainjob("resumes", 1, framework="plain", trainer=trainer, checkpoint=checkpoint)
    trainjobs.cluster.api.create(f"/apis/kubeflow.org/v2alpha1/namespaces/{trainjobs.namespace}/trainjobs", job)
    # Older ones are removed once the newest is safe.
    eventually(lambda: saved(s3) == ["checkpoint-20", "checkpoint-30"], 120)
    assert "begins at step 0" in trainjobs.log("resumes")
    shown = lambda: trainjobs.status("resumes").get("metrics") or [{}]  # noqa: E731
    eventually(lambda: shown()[-1].get("value") == "34")

    kubectl.must("delete", "pod", "--force", "--grace-period=0", "--selector=train_job_name=resumes")
    status = trainjobs.await_success("resumes")
    assert "begins at step 30" in trainjobs.log("resumes")
    # The job has not ended before what the program has written last was saved, and its log was read.
    assert saved(s3) == ["checkpoint-30", "checkpoint-40"]
    checkpoint = status["checkpoint"]
    assert (checkpoint["name"], checkpoint["step"]) == ("checkpoint-40", 40)
    assert checkpoint["saved"] >= 3  # the first one may have been superseded before it was uploaded
    assert checkpoint["size"] > 100_000
    assert checkpoint["uri"].startswith(f"s3://{BUCKET}/resumes/data/checkpoint-40/")
    assert "failure" not in checkpoint
    restored = checkpoint["restored"]
    assert (restored["name"], restored["step"], restored["repeatedSteps"]) == ("checkpoint-30", 30, 4)


# The chief ends twice: after step 30 with an error, as soon as that checkpoint is saved, and when the test wants it. A
# worker fails until it has something to go on from.
REPLICA = """
import json, os, pathlib, signal, sys, time
folder, resume = (pathlib.Path(os.environ[name]) for name in ("TRAINJOB_CHECKPOINT_DIR", "TRAINJOB_RESUME_FROM"))
step = int((resume / "step").read_text()) if resume.exists() else 0
print(f"begins at step {step}", flush=True)
if json.loads(os.environ["TF_CONFIG"])["task"]["index"] > 0:
    if step == 0:
        sys.exit(137)
    signal.pause()
for number in () if step else (10, 20, 30):
    checkpoint = folder / f"checkpoint-{number}"
    checkpoint.mkdir()
    (checkpoint / "step").write_text(str(number))
    (checkpoint / ".done").touch()
while not step and not (resume.exists() and resume.readlink().name == "checkpoint-30"):
    time.sleep(0.1)
while step and not (folder / ".end").exists():
    time.sleep(0.1)
sys.exit(0 if step else 137)
"""


def test_the_replicas_of_a_tfjob_go_on_from_what_the_chief_has_saved(
    trainjobs: TrainJobs, kubectl: Kubectl, s3: S3Server
) -> None:
    """The chief's container is restarted in its pod, and a worker's pod is recreated."""
    trainjobs.give(images.BASE, images.INITIALIZER)
    template = pod_template(
        container(image=images.BASE, imagePullPolicy="IfNotPresent", command=["python3", "-c", REPLICA])
    )
    checkpoint = {"storageUri": f"s3://{BUCKET}/resumes", "secretRef": {"name": SECRET}, "keep": 2}
    job = tfjob(workers(2, template=template), name="resumes", checkpoint=checkpoint)
    trainjobs.cluster.api.create(f"/apis/kubeflow.org/v1alpha1/namespaces/{trainjobs.namespace}/tfjobs", job)
    chief, worker = (f"tf_job_name=resumes,job_type=WORKER,task_index={index}" for index in (0, 1))

    def begins_at_30(replica: str) -> bool:
        return "begins at step 30" in kubectl.run("logs", "-l", replica, "-c", "tensorflow", "--tail=-1").out

    eventually(lambda: begins_at_30(chief), 120)
    assert saved(s3) == ["checkpoint-20", "checkpoint-30"]
    eventually(lambda: begins_at_30(worker), 120)
    pods = json.loads(kubectl.must("get", "pods", "-o", "json", "-l", chief))["items"]
    (restarts,) = (status["restartCount"] for pod in pods for status in pod["status"]["containerStatuses"])
    assert restarts == 1
    name = pods[0]["metadata"]["name"]
    kubectl.must("exec", name, "-c", "tensorflow", "--", "touch", "/workspace/checkpoints/.end")
    path = f"/apis/kubeflow.org/v1alpha1/namespaces/{trainjobs.namespace}/tfjobs/resumes"
    status = lambda: trainjobs.cluster.api.get(path)["status"]  # noqa: E731
    eventually(lambda: status().get("summary") == "Succeeded")
    assert (status()["checkpoint"]["name"], status()["checkpoint"]["step"]) == ("checkpoint-30", 30)
