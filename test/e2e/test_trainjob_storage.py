"""Dataset and model come to the nodes from real servers, and the trained model goes back to one."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers.cluster import Cluster
from helpers.hubserver import TOKEN, HubServer
from helpers.kubectl import MANIFESTS, Kubectl
from helpers.realtrainjobs import TrainJobs
from helpers.s3server import S3Server
from localcluster import images, network

pytestmark = pytest.mark.nodes

SAMPLE, SECRET = "trainjob-finetune", "finetune-storage"
BUCKET, MODELS = "ml-datasets", "ml-models"
DATASET = {
    "instruction-tuning/train.jsonl": b'{"text": "hello"}\n' * 5000,
    "instruction-tuning/part/more.jsonl": b"{}\n",
}
MODEL = {"config.json": b'{"layers": 2}', "weights.bin": bytes(range(256)) * 4000}

# A program that needs no framework: its trained model is the sizes of the files that it finds.
# Both nodes write the same.
SIZES = """
import json, os, pathlib
found = {}
for name in ("dataset", "model"):
    folder = pathlib.Path("/workspace", name)
    sizes = {str(path.relative_to(folder)): path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    found[name] = sizes
output = pathlib.Path("/workspace/output")
output.mkdir(exist_ok=True)
own = output / os.uname().nodename
own.write_text(json.dumps(found))
own.rename(output / "result.json")
"""

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Stores:
    s3: S3Server
    hub: HubServer


@pytest.fixture
def stores(nodes: Cluster, kubectl: Kubectl, space: str) -> Iterator[Stores]:
    """An S3 server and a hub where pods can reach them; a Secret that says how."""
    if nodes.plane is None:
        pytest.skip("serves on the address of its own nodes' bridge: unset KUBECONFIG")
    plan = network.claim_of(nodes.folder.absolute())
    assert plan is not None
    hub = HubServer(dict(MODEL), address=plan.host, repository="example-org/tiny-model", needs_token=True)
    with S3Server(plan.host) as s3, hub:
        client = s3.client()
        for bucket in (BUCKET, MODELS):
            client.create_bucket(Bucket=bucket)
        for name, data in DATASET.items():
            client.put_object(Bucket=BUCKET, Key=name, Body=data)
        said = {**s3.environ, **hub.environ, "HF_TOKEN": TOKEN}
        data = {name: base64.b64encode(value.encode()).decode() for name, value in said.items()}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}, "data": data}
        nodes.api.create(f"/api/v1/namespaces/{space}/secrets", secret)
        yield Stores(s3, hub)


def sample() -> tuple[Object, Object]:
    """Its ConfigMap, and the job."""
    config_map, job = yaml.safe_load_all((MANIFESTS / "samples" / f"{SAMPLE}.yaml").read_text())
    return config_map, job


def apply(kubectl: Kubectl, folder: Path, *objects: Object) -> None:
    path = folder / "objects.yaml"
    path.write_text(yaml.safe_dump_all(objects))
    kubectl.must("apply", "-f", str(path))


def test_a_model_is_fine_tuned_with_what_two_servers_have(
    trainjobs: TrainJobs, kubectl: Kubectl, stores: Stores, tmp_path: Path
) -> None:
    trainjobs.give(images.TORCH, images.INITIALIZER)
    apply(kubectl, tmp_path, *sample())
    status = trainjobs.await_success(SAMPLE)
    assert "2 ranks agree" in trainjobs.log(SAMPLE)
    assert {each["name"] for each in status["metrics"]} >= {"loss", "step"}
    logs = [trainjobs.log(SAMPLE, container=each) for each in ("dataset-initializer", "model-initializer")]
    for secret in (TOKEN, stores.s3.environ["AWS_SECRET_ACCESS_KEY"]):
        assert all(secret not in log for log in logs)


def test_what_is_shared_is_fetched_once_and_the_trained_model_goes_where_the_job_says(
    trainjobs: TrainJobs, kubectl: Kubectl, stores: Stores, shared_claim: str, tmp_path: Path
) -> None:
    trainjobs.give(images.BASE, images.INITIALIZER)
    _, job = sample()
    del job["spec"]["podSpecOverrides"]
    job["spec"]["trainer"] = {"image": images.BASE, "command": ["python3", "-c", SIZES]}
    runtime = {
        "apiVersion": job["apiVersion"],
        "kind": "TrainingRuntime",
        "metadata": {"name": "shared"},
        "spec": {"framework": "plain", "workspace": {"persistentVolumeClaim": {"claimName": shared_claim}}},
    }
    job["spec"]["runtimeRef"] = {"kind": "TrainingRuntime", "name": "shared"}
    output = {"storageUri": f"s3://{MODELS}/tiny", "secretRef": {"name": SECRET}}
    job["spec"]["modelConfig"]["output"] = output
    apply(kubectl, tmp_path, runtime, job)
    status = trainjobs.await_success(SAMPLE)
    assert [(each["name"], each["succeeded"]) for each in status["jobsStatus"]] == [
        ("node", 2),
        ("dataset-initializer", 1),
        ("model-initializer", 1),
        ("model-exporter", 1),
    ]
    client = stores.s3.client()
    names = [each["Key"] for each in client.list_objects_v2(Bucket=MODELS)["Contents"]]
    assert "tiny/result.json" in names, names
    result = json.loads(client.get_object(Bucket=MODELS, Key="tiny/result.json")["Body"].read())
    assert result["dataset"].items() >= {"train.jsonl": 90000, "part/more.jsonl": 3}.items()
    assert result["model"].items() >= {name: len(data) for name, data in MODEL.items()}.items()
