"""Starts a cluster and the controller, trains on two nodes, and cuts off the node of rank 0 as in a power failure.

The nodes share no storage: the checkpoints are in the bucket of a local S3 server. It passes only if the job is
Done/SUCCESS *and* it went on from a checkpoint *and* no more steps were done twice than since the last one that was
saved.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from demo.kubectl import KubectlError
from demo.play import Scene
from demo.sample import Sample, check_job, run_sample, show_end
from demo.screen import Check
from demo.stage import Cluster, Object, Stage
from localcluster import images, network, stack
from localcluster.errors import LocalClusterError

# The node is noticed to be lost after half a minute, and its pod counts as lost a minute and a half later.
SAMPLE = Sample(
    path=Path("manifests/samples/resume-torch.yaml"),
    kind="trainjob",
    image=images.TORCH,
    settings={"STEPS": "300", "STEP_SECONDS": "0.2"},
    timeout_seconds=600,
)
BUCKET, REGION, SECRET, KEY = "checkpoints", "us-east-1", "storage", "key"
# The steps between two checkpoints of the sample.
SAVE_STEPS = 25
_STEP = re.compile(r"^step=(\d+) ", re.MULTILINE)
_BEGIN = re.compile(r"^continues after step (\d+)$", re.MULTILINE)


@dataclass(slots=True)
class Failure:
    """Cuts off the node of rank 0 once a checkpoint is saved, and counts the steps that are done twice."""

    stage: Stage
    saved: str = ""
    # The last step before the node was cut off, and since when it is.
    last_step: int = 0
    killed: int = 0
    since: float = 0.0
    # The step after which the job went on, and how long after the failure.
    resumed: int | None = None
    seconds: float = 0.0

    def look(self, job: Object) -> None:
        if not self.killed:
            self._await_checkpoint()
        elif self.resumed is None:
            self._await_resumption()

    def _await_checkpoint(self) -> None:
        steps = [int(step) for step in _STEP.findall(log_of(self.stage, "node"))]
        self.last_step = max(steps, default=0)
        lines = log_of(self.stage, "checkpoint-save").splitlines()
        entries = (json.loads(line).get("checkpoint") for line in lines if line.startswith('{"checkpoint"'))
        saved = [str(entry["name"]) for entry in entries if entry]
        self.saved = saved[-1] if saved else ""
        # Halfway between two checkpoints, so that steps are lost.
        if len(saved) < 2 or self.last_step % SAVE_STEPS < SAVE_STEPS // 2:
            return
        pod = self.stage.kubectl.items("pods", SAMPLE.node_0)[0]
        number = int(pod["spec"]["nodeName"].rpartition("-")[2])
        notes = f"rank 0 runs there; {self.saved} is the last that is saved"
        self.stage.screen.step(f"make node-kill N={number}   ({notes})")
        stack.node_kill(self.stage.folder, number)
        self.killed, self.since = number, time.monotonic()

    def _await_resumption(self) -> None:
        begins = steps_continued_after(self.stage)
        # The log of the lost node cannot be read any more.
        if begins:
            self.resumed, self.seconds = begins[-1], time.monotonic() - self.since
            text = f"  it continues after step {self.resumed}, {self.seconds:.0f} s after the failure"
            self.stage.screen.output(text)

    def check_resumption(self) -> Check:
        if self.resumed is None:
            return Check(False, "it did not go on after the failure")
        text = f"it went on after step {self.resumed} on another node, {self.seconds:.0f} s after the failure"
        return Check(self.resumed > 0, text)

    def check_steps(self) -> Check:
        """Checks that only steps after the last checkpoint that was seen to be saved were done twice."""
        saved, resumed = step_of(self.saved), self.resumed or 0
        text = f"{self.saved or 'none'} was the last that was saved, and step {self.last_step} was reached:"
        holds = self.resumed is not None and saved <= resumed < self.last_step
        return Check(holds, f"{text} {max(0, self.last_step - resumed)} steps were done twice")


def step_of(checkpoint: str) -> int:
    """Returns the step in the name of a checkpoint."""
    return int(re.sub(r"\D", "", checkpoint) or 0)


def steps_continued_after(stage: Stage) -> list[int]:
    """Returns the steps after which the processes of rank 0's present pod went on."""
    return [int(step) for step in _BEGIN.findall(log_of(stage, "node"))]


def log_of(stage: Stage, container: str) -> str:
    """Returns the log of rank 0's present pod; empty before it runs. The kubelet of a lost pod does not answer."""
    pods = stage.kubectl.items("pods", SAMPLE.node_0)
    present = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
    if not present:
        return ""
    newest = max(present, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
    try:
        return stage.kubectl.run("logs", newest["metadata"]["name"], "-c", container, "--tail=-1")
    except KubectlError:
        return ""


def run(stage: Stage) -> list[Check]:
    if not stage.own_nodes:
        raise LocalClusterError("it cuts off a node, so it needs nodes of its own: unset KUBECONFIG")
    with bucket(stage) as url:
        stage.screen.step(f"an S3 server at {url} with the bucket {BUCKET}; the nodes share no storage")
        failure = Failure(stage)
        try:
            followed = run_sample(stage, SAMPLE, failure.look)
        finally:
            if failure.killed and stage.stays:
                stack.node_start(stage.folder, failure.killed, stage.screen.detail)
        for container in ("checkpoint-restore", "checkpoint-save"):
            with stage.screen.command(f"kubectl logs -l {SAMPLE.node_0} -c {container}   (results)"):
                lines = log_of(stage, container).splitlines()
                results = (line for line in lines if line.startswith(('{"restored"', '{"checkpoint"')))
                stage.screen.output("\n".join(results))
        show_end(stage, SAMPLE)
    return [check_job(followed.job), failure.check_resumption(), failure.check_steps()]


@contextmanager
def bucket(stage: Stage) -> Iterator[str]:
    """Yields the URL of an S3 server with an empty bucket, for which pods have credentials; it ends with the demo."""
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
        yield url
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


SCENE = Scene(
    target="demo-resume",
    description=__doc__ or "",
    cluster=Cluster(images=(SAMPLE.image, images.INITIALIZER)),
    run=run,
    page="docs/checkpoints.md",
    sample=SAMPLE,
    variable="TORCH_IMAGE",
    commands=(
        f"kubectl describe trainjob {SAMPLE.name}",
        f"kubectl logs -l {SAMPLE.node_0} -c checkpoint-restore",
    ),
)
