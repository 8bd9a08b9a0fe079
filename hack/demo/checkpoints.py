"""The sample whose checkpoints are in a bucket, and a local S3 server with that bucket."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from demo.kubectl import KubectlError
from demo.sample import Sample
from demo.stage import Object, Stage
from localcluster import images, network
from localcluster.errors import LocalClusterError

SAMPLE = Sample(path=Path("manifests/samples/resume-torch.yaml"), kind="trainjob", image=images.TORCH)
BUCKET, REGION, SECRET, KEY = "checkpoints", "us-east-1", "storage", "key"
_BEGIN = re.compile(r"^continues after step (\d+)$", re.MULTILINE)


def step_of(checkpoint: str) -> int:
    """Returns the step in the name of a checkpoint."""
    return int(re.sub(r"\D", "", checkpoint) or 0)


def steps_continued_after(stage: Stage) -> list[int]:
    """Returns the steps after which the processes of rank 0's present pod went on."""
    return [int(step) for step in _BEGIN.findall(_log(stage))]


def _log(stage: Stage) -> str:
    """Returns the log of rank 0's present pod; empty before it runs."""
    pods = stage.kubectl.items("pods", SAMPLE.node_0)
    present = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
    if not present:
        return ""
    newest = max(present, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
    try:
        return stage.kubectl.run("logs", newest["metadata"]["name"], "-c", "node", "--tail=-1")
    except KubectlError:
        return ""


@contextmanager
def bucket(stage: Stage) -> Iterator[None]:
    """Runs an S3 server with an empty bucket, for which pods have credentials, until the end of the block."""
    # Only this needs them, and not every environment has them.
    import boto3
    from moto.server import ThreadedMotoServer

    plan = network.claim_of(stage.folder.absolute())
    if plan is None:
        raise LocalClusterError(f"the nodes of {stage.folder} have no network: run `make cluster-down` and try again")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address=plan.host, port=0, verbose=False)
    server.start()
    try:
        url = f"http://{plan.host}:{server.get_host_and_port()[1]}"
        client = boto3.client("s3", REGION, endpoint_url=url, aws_access_key_id=KEY, aws_secret_access_key=KEY)
        client.create_bucket(Bucket=BUCKET)
        stage.apply(_secret(url))
        yield
    finally:
        server.stop()


def _secret(url: str) -> Object:
    """Returns the Secret that the sample names."""
    variables = {
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": KEY,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ENDPOINT_URL_S3": url,
    }
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}, "stringData": variables}
