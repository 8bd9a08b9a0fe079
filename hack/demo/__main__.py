"""Starts a cluster and the controller, runs the example job, and shows each step.

Exit code 0 only if the job is Done/Succeeded *and* the master's log holds the right numbers *and* its pods used both
nodes. Ctrl-C stops everything that the demo has started.
"""

from __future__ import annotations

import sys
from pathlib import Path

from demo.checks import Check, check_job, check_log
from demo.follow import Subject, follow
from demo.kubectl import Kubectl
from demo.play import Image, Play, perform, remove_earlier, spread_checks
from demo.screen import Screen
from demo.stage import Stage
from demo.steps import ROOT, show

SAMPLE = Path("manifests/samples/example-job.yaml")
JOB = "example-job"
SUBJECT = Subject("tfjob", JOB, "tf_job_name")
MASTER = f"tf_job_name={JOB},job_type=MASTER"
JOB_TIMEOUT_SECONDS = 300
# The image that the samples name; replaced if another one is requested.
SAMPLE_IMAGE = "localhost/tensorflow"


def main() -> int:
    """Runs the demo and returns the exit code."""
    image = Image("--tf-image", "TF_IMAGE", SAMPLE_IMAGE, "image with TensorFlow that the cluster can pull")
    commands = (
        "kubectl get tfjobs,jobs,pods -o wide",
        f"kubectl describe tfjob {JOB}",
        "kubectl apply -f manifests/samples/train-ps.yaml",
    )
    return perform(Play("demo", __doc__ or "", image, run, SAMPLE, commands, "docs/quickstart.md"))


def run(stage: Stage, screen: Screen, image: str) -> list[Check]:
    """Runs the job: apply, follow, log, events, checks. Returns the checks."""
    kubectl = stage.kubectl
    remove_earlier(stage, screen, SUBJECT)
    screen.step(f"kubectl apply -f {SAMPLE}")
    manifest = (ROOT / SAMPLE).read_text().replace(SAMPLE_IMAGE, image)
    screen.output(kubectl.run("apply", "-f", "-", stdin=manifest))
    screen.blank()
    seen = follow(kubectl, SUBJECT, screen, JOB_TIMEOUT_SECONDS)
    screen.blank()
    log = show_end(kubectl, screen)
    return [check_job(seen.job), check_log(log), *spread_checks(stage, seen)]


def show_end(kubectl: Kubectl, screen: Screen) -> str:
    """Shows the results as a user would; returns the master's log."""
    with screen.command(f"kubectl logs -l {MASTER}"):
        log = kubectl.run("logs", "-l", MASTER, "--tail=-1")
        screen.output("\n".join(line for line in log.splitlines() if not _is_noise(line)))
    show(kubectl, screen, f"kubectl events --for tfjob/{JOB}")
    show(kubectl, screen, "kubectl get tfjobs")
    return log


def _is_noise(line: str) -> bool:
    """Reports whether a line is start-up output of TensorFlow (absl's `I0000 …` lines)."""
    return line[:5] in ("I0000", "W0000", "E0000") or line.startswith(("WARNING: All log messages", "To enable the"))


if __name__ == "__main__":
    sys.exit(main())
