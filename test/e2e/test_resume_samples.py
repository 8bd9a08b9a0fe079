"""The samples that resume: each loses its pod while it trains, and continues from its last checkpoint."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from helpers.kubectl import MANIFESTS, Kubectl
from helpers.poll import eventually
from helpers.realtrainjobs import TrainJobs
from helpers.s3server import S3Server
from localcluster import images

pytestmark = pytest.mark.nodes

Object = dict[str, Any]


def sample(name: str, environment: Mapping[str, str]) -> str:
    """The sample as it is, slowed down."""
    objects = list(yaml.safe_load_all((MANIFESTS / "samples" / f"{name}.yaml").read_text()))
    spec = objects[-1]["spec"]
    env = [{"name": each, "value": value} for each, value in environment.items()]
    if "trainer" in spec:
        spec["trainer"]["env"] = env
    else:
        spec["replicaSpecs"][0]["template"]["spec"]["containers"][0]["env"] = env
    return yaml.safe_dump_all(objects)


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "image", "environment", "begins"),
    [
        pytest.param(
            "trainjob",
            images.TRANSFORMERS,
            # Two checkpoints stay in the folder: each must settle before the next but one replaces it.
            {"STEPS": "60", "STEP_SECONDS": "1"},
            r"^continues from checkpoint-\d+$",
            id="transformers",
        ),
        pytest.param(
            "tfjob", images.TENSORFLOW, {"EPOCH_SECONDS": "2"}, r"^continues after epoch [1-9]", id="tensorflow"
        ),
    ],
)
def test_a_sample_goes_on_from_its_last_checkpoint(
    trainjobs: TrainJobs,
    kubectl: Kubectl,
    s3: S3Server,
    kind: str,
    image: str,
    environment: Mapping[str, str],
    begins: str,
    request: pytest.FixtureRequest,
) -> None:
    name = f"resume-{request.node.callspec.id}"
    trainjobs.give(image, images.INITIALIZER)
    kubectl.must("apply", "-f", "-", manifest=sample(name, environment))
    label = f"{'train_job_name' if kind == 'trainjob' else 'tf_job_name'}={name}"

    def has_saved() -> bool:
        listed = s3.client().list_objects_v2(Bucket="checkpoints", Prefix=f"{name}/manifests/")
        return bool(listed.get("Contents"))

    def summary() -> str:
        return kubectl.must("get", kind, name, "-o", "jsonpath={.status.summary}")

    eventually(has_saved, 240)
    kubectl.must("delete", "pod", "--force", "--grace-period=0", "-l", label)
    eventually(lambda: summary() in ("Succeeded", "Failed"), 240)
    assert summary() == "Succeeded"
    log = kubectl.must("logs", "-l", label, "-c", "node" if kind == "trainjob" else "tensorflow", "--tail=-1")
    assert re.search(begins, log, re.MULTILINE), log
