"""Starts a cluster and the controller, trains a PyTorch model on two nodes, and shows its progress.

Exit code 0 only if the job is Done/SUCCESS *and* its loss fell *and* all four ranks agree *and* its metrics were seen
at /metrics while it ran *and* its pods used both nodes. Ctrl-C stops everything that the demo has started.
"""

from __future__ import annotations

import contextlib
import re
import sys
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

from demo.checks import Check, check_job
from demo.follow import Subject, follow
from demo.kubectl import Kubectl
from demo.picture import Object
from demo.play import Image, Play, perform, remove_earlier, spread_checks
from demo.screen import Screen
from demo.stage import Stage
from demo.steps import ROOT, RUNTIMES, apply_slowed, show, slowed

SAMPLE = Path("manifests/samples/trainjob-torch.yaml")
JOB = "trainjob-torch"
SUBJECT = Subject("trainjob", JOB, "train_job_name")
NODE_0 = f"train_job_name={JOB},job_type=node,batch.kubernetes.io/job-completion-index=0"
JOB_TIMEOUT_SECONDS = 300
SAMPLE_IMAGE = "localhost/torch"
# The sample is slowed down, since it ends within a second.
PACE = {"STEPS": "150", "STEP_SECONDS": "0.15"}
RANKS = 4
_SERIES = "tfjob_training_metric{"


@dataclass(slots=True)
class Scrape:
    """The last observed series of the job at /metrics."""

    address: str
    seen: dict[str, str] = field(default_factory=dict)

    def look(self, job: Object) -> None:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.address}/metrics", timeout=2) as answer:
            lines = answer.read().decode().splitlines()
            self.seen.update(dict(line.rsplit(" ", 1) for line in lines if line.startswith(_SERIES)))


def main() -> int:
    """Runs the demo and returns the exit code."""
    image = Image("--image", "TORCH_IMAGE", SAMPLE_IMAGE, "image with PyTorch that the cluster can pull")
    commands = (
        "kubectl get trainjobs,jobs,pods -o wide",
        f"kubectl describe trainjob {JOB}",
        "kubectl apply -f manifests/samples/trainjob-plain.yaml",
    )
    return perform(Play("demo-trainjob", __doc__ or "", image, run, SAMPLE, commands, "docs/trainjob.md"))


def run(stage: Stage, screen: Screen, image: str) -> list[Check]:
    """Runs the job: apply, follow, log, events, checks. Returns the checks."""
    kubectl = stage.kubectl
    remove_earlier(stage, screen, SUBJECT)
    screen.step(f"kubectl apply -k {RUNTIMES}")
    screen.output(kubectl.run("apply", "--server-side", "-k", str(ROOT / RUNTIMES)))
    apply_slowed(kubectl, screen, SAMPLE, slowed(SAMPLE, image, PACE), PACE)
    scrape = Scrape(stage.controller_address)
    seen = follow(kubectl, SUBJECT, screen, JOB_TIMEOUT_SECONDS, scrape.look)
    screen.blank()
    log = show_end(kubectl, screen, scrape)
    return [
        check_job(seen.job, "SUCCESS"),
        check_training(log),
        check_metrics(seen.job, scrape),
        *spread_checks(stage, seen),
    ]


def show_end(kubectl: Kubectl, screen: Screen, scrape: Scrape) -> str:
    """Shows the results as a user would; returns the log of node 0."""
    with screen.command(f"kubectl logs -l {NODE_0} --tail=5"):
        log = kubectl.run("logs", "-l", NODE_0, "--tail=-1")
        screen.output("\n".join(log.splitlines()[-5:]))
    with screen.command("curl /metrics   (while it ran)"):
        screen.output("\n".join(f"{name} {value}" for name, value in sorted(scrape.seen.items())))
    show(kubectl, screen, f"kubectl events --for trainjob/{JOB}")
    show(kubectl, screen, "kubectl get trainjobs")
    return log


def check_training(log: str) -> Check:
    """Checks the last lines of rank 0."""
    found = re.search(r"^rank 0: loss (\S+) -> (\S+), (\d+) ranks agree$", log, re.MULTILINE)
    if found is None:
        return Check(False, "the log of node 0 does not show that the ranks agree")
    before, after, ranks = float(found[1]), float(found[2]), int(found[3])
    return Check(after < before / 10 and ranks == RANKS, f"loss {before} -> {after}, {ranks} of {RANKS} ranks agree")


def check_metrics(job: Object, scrape: Scrape) -> Check:
    """Checks the metrics in the status and, while the job ran, at /metrics."""
    names = {each["name"] for each in job.get("status", {}).get("metrics", ())}
    served = any('metric="loss"' in series for series in scrape.seen)
    holds = {"loss", "step"} <= names and served
    return Check(holds, f"metrics in the status: {', '.join(sorted(names)) or 'none'}; loss at /metrics: {served}")


if __name__ == "__main__":
    sys.exit(main())
