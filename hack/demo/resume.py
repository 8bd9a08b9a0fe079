"""Starts a cluster and the controller, trains on two nodes, and cuts off the node of rank 0 as in a power failure.

The nodes share no storage: the checkpoints are in the bucket of a local S3 server. Exit code 0 only if the job is
Done/SUCCESS *and* it went on from a checkpoint *and* no more steps were done twice than since the last one that was
saved. Ctrl-C stops everything that the demo started.
"""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from demo.checks import Check, check_job
from demo.follow import DemoError, Subject, follow
from demo.kubectl import Kubectl, KubectlError
from demo.picture import Object
from demo.play import Image, Play, perform, remove_earlier
from demo.screen import Screen
from demo.stage import Stage
from demo.steps import ROOT, RUNTIMES, apply_slowed, show, slowed
from localcluster import network, stack

SAMPLE = Path("manifests/samples/resume-torch.yaml")
JOB, BUCKET, SECRET = "resume-torch", "checkpoints", "storage"
SUBJECT = Subject("trainjob", JOB, "train_job_name")
NODE_0 = f"train_job_name={JOB},job_type=node,batch.kubernetes.io/job-completion-index=0"
# The node is noticed to be lost after half a minute, and its pod counts as lost a minute and a half later.
JOB_TIMEOUT_SECONDS = 600
SAMPLE_IMAGE = "localhost/torch"
SETTINGS = {"STEPS": "300", "STEP_SECONDS": "0.2"}
# The steps between two checkpoints of the sample.
SAVE_STEPS = 25
_STEP = re.compile(r"^step=(\d+) ", re.MULTILINE)
_BEGIN = re.compile(r"^continues after step (\d+)$", re.MULTILINE)
_SERVER = """
import sys, time
import boto3
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address=sys.argv[1], port=0, verbose=False)
server.start()
url = f"http://{sys.argv[1]}:{server.get_host_and_port()[1]}"
boto3.client("s3", endpoint_url=url, region_name="us-east-1", aws_access_key_id="key",
             aws_secret_access_key="secret").create_bucket(Bucket=sys.argv[2])
print(url, flush=True)
sys.stdin.read()
"""


@dataclass(slots=True)
class Failure:
    """Cuts off the node of rank 0 once a checkpoint is saved, and counts the steps that are done twice."""

    kubectl: Kubectl
    folder: Path
    screen: Screen
    saved: tuple[str, ...] = ()
    # The last step that was seen before the node was cut off, and since when it is.
    last_step: int = 0
    killed: int = 0
    since: float = 0.0
    # The step after which the job went on, and how long after the failure.
    resumed: int | None = None
    seconds: float = 0.0

    @property
    def repeated(self) -> int:
        return max(0, self.last_step - (self.resumed or 0))

    def look(self, job: Object) -> None:
        if not self.killed:
            self._await_checkpoint()
        elif self.resumed is None:
            self._await_resumption()

    def _await_checkpoint(self) -> None:
        steps = [int(step) for step in _STEP.findall(self._log())]
        self.last_step = max(steps, default=0)
        lines = self._log("checkpoint-save").splitlines()
        saved = (json.loads(line).get("checkpoint") for line in lines if line.startswith('{"checkpoint"'))
        self.saved = tuple(str(each["name"]) for each in saved if each)
        # Halfway between two checkpoints, so that steps are lost.
        if len(self.saved) < 2 or self.last_step % SAVE_STEPS < SAVE_STEPS // 2:
            return
        pod = self.kubectl.items("pods", NODE_0)[0]
        number = int(pod["spec"]["nodeName"].rpartition("-")[2])
        self.screen.step(f"make node-kill N={number}   (rank 0 runs there; {self.saved[-1]} is the last that is saved)")
        stack.node_kill(self.folder, number)
        self.killed, self.since = number, time.monotonic()

    def _await_resumption(self) -> None:
        begins = [int(step) for step in _BEGIN.findall(self._log())]
        # The log of the lost node cannot be read any more.
        if begins:
            self.resumed, self.seconds = begins[-1], time.monotonic() - self.since
            self.screen.output(f"  it continues after step {self.resumed}, {self.seconds:.0f} s after the failure")

    def _log(self, container: str = "node") -> str:
        return log_of(self.kubectl, container)


def log_of(kubectl: Kubectl, container: str) -> str:
    """Returns the log of rank 0's present pod; empty before it runs. The kubelet of a lost pod does not answer."""
    present = [pod for pod in kubectl.items("pods", NODE_0) if not pod["metadata"].get("deletionTimestamp")]
    if not present:
        return ""
    newest = max(present, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
    try:
        return kubectl.run("logs", newest["metadata"]["name"], "-c", container, "--tail=-1")
    except KubectlError:
        return ""


def main() -> int:
    """Runs the demo and returns the exit code."""
    image = Image("--image", "TORCH_IMAGE", SAMPLE_IMAGE, "image with PyTorch that the cluster can pull")
    commands = (f"kubectl describe trainjob {JOB}", f"kubectl logs -l {NODE_0} -c checkpoint-restore")
    page = "docs/checkpoints.md"
    return perform(Play("demo-resume", __doc__ or "", image, run, SAMPLE, commands, page, transfers=True))


def run(stage: Stage, screen: Screen, image: str) -> list[Check]:
    """Runs the job: apply, cut off a node while it trains, log, checks. Returns the checks."""
    if not stage.own_nodes:
        raise DemoError("it cuts off a node, so it needs nodes of its own: unset KUBECONFIG")
    kubectl, folder = stage.kubectl, Path(stage.kubectl.kubeconfig).parent
    remove_earlier(stage, screen, SUBJECT)
    kubectl.run("apply", "--server-side", "-k", str(ROOT / RUNTIMES))
    with bucket(folder) as url:
        screen.step(f"an S3 server at {url} with the bucket {BUCKET}; the nodes share no storage")
        kubectl.run("apply", "-f", "-", stdin=json.dumps(credentials(url)))
        apply_slowed(kubectl, screen, SAMPLE, slowed(SAMPLE, image, SETTINGS), SETTINGS)
        failure = Failure(kubectl, folder, screen)
        try:
            seen = follow(kubectl, SUBJECT, screen, JOB_TIMEOUT_SECONDS, failure.look)
        finally:
            if failure.killed and stage.stays:
                stack.node_start(folder, failure.killed, screen.detail)
        screen.blank()
        show_end(kubectl, screen)
    return [check_job(seen.job, "SUCCESS"), check_resumption(failure), check_steps(failure)]


@contextmanager
def bucket(folder: Path) -> Iterator[str]:
    """Yields the URL of an S3 server that pods can reach, with an empty bucket; it ends with the demo."""
    plan = network.claim_of(folder.absolute())
    if plan is None:
        raise DemoError(f"the nodes of {folder} have no network: run `make cluster-down`, then the demo again")
    command = [sys.executable, "-c", _SERVER, plan.host, BUCKET]
    log = folder / "logs" / "s3.log"
    with log.open("w") as errors:
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        url = server.stdout.readline().strip() if server.stdout else ""
        if not url:
            raise DemoError(f"the S3 server did not start: see {log}")
        yield url
    finally:
        server.kill()
        server.wait()


def credentials(url: str) -> Object:
    """Returns the Secret that the sample names."""
    variables = {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL_S3": url,
    }
    data = {name: base64.b64encode(value.encode()).decode() for name, value in variables.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}, "data": data}


def show_end(kubectl: Kubectl, screen: Screen) -> None:
    """Shows the results as a user would."""
    for container in ("checkpoint-restore", "checkpoint-save"):
        with screen.command(f"kubectl logs -l {NODE_0} -c {container}   (results)"):
            log = log_of(kubectl, container)
            screen.output(
                "\n".join(line for line in log.splitlines() if line.startswith(('{"restored"', '{"checkpoint"')))
            )
    show(kubectl, screen, f"kubectl events --for trainjob/{JOB}")
    show(kubectl, screen, "kubectl get trainjobs")


def check_resumption(failure: Failure) -> Check:
    if failure.resumed is None:
        return Check(False, "it did not go on after the failure")
    words = f"it went on after step {failure.resumed} on another node, {failure.seconds:.0f} s after the failure"
    return Check(failure.resumed > 0, words)


def check_steps(failure: Failure) -> Check:
    """Checks that only steps after the last checkpoint that was seen to be saved were done twice."""
    last = failure.saved[-1] if failure.saved else "none"
    words = f"{last} was the last that was saved, and step {failure.last_step} was reached:"
    saved = int(re.sub(r"\D", "", last) or 0)
    holds = failure.resumed is not None and saved <= failure.resumed < failure.last_step
    return Check(holds, f"{words} {failure.repeated} steps were done twice")


if __name__ == "__main__":
    sys.exit(main())
