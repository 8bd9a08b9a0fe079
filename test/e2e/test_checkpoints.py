"""Checkpoints outlive the pods that wrote them: a job whose pod is lost goes on from the last one."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from helpers.cluster import Cluster
from helpers.kubectl import Kubectl
from helpers.poll import eventually
from helpers.realtrainjobs import TrainJobs
from helpers.s3server import S3Server
from helpers.trainmanifests import trainjob
from localcluster import images, network

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(600)]

SECRET, BUCKET = "checkpoint-storage", "checkpoints"
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


@pytest.fixture
def s3(nodes: Cluster, space: str) -> Iterator[S3Server]:
    """An S3 server where pods can reach it, and a Secret that says how."""
    if nodes.plane is None:
        pytest.skip("serves on the address of its own nodes' bridge: unset KUBECONFIG")
    plan = network.claim_of(nodes.folder.absolute())
    assert plan is not None
    with S3Server(plan.host) as s3:
        s3.client().create_bucket(Bucket=BUCKET)
        data = {name: base64.b64encode(value.encode()).decode() for name, value in s3.environ.items()}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}, "data": data}
        nodes.api.create(f"/api/v1/namespaces/{space}/secrets", secret)
        yield s3


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
    eventually(lambda: saved(s3) == ["checkpoint-20", "checkpoint-30"], 120, 0.5)
    assert "begins at step 0" in trainjobs.log("resumes")
    shown = lambda: trainjobs.status("resumes").get("metrics") or [{}]  # noqa: E731
    eventually(lambda: shown()[-1].get("value") == "34", 60, 0.5)

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
