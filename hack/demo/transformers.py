"""Starts a cluster and the controller, trains with Hugging Face's Trainer, and shows the progress that it reports.

Exit code 0 only if the job is Done/SUCCESS *and* reports from its begin, middle and end were seen *and* its loss
fell. Ctrl-C stops everything that the demo has started.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from demo.checks import Check, check_job
from demo.follow import Subject, follow
from demo.kubectl import Kubectl
from demo.picture import Object
from demo.play import Image, Play, perform, remove_earlier
from demo.screen import Screen
from demo.stage import Stage
from demo.steps import ROOT, RUNTIMES, apply_slowed, show, slowed

SAMPLE = Path("manifests/samples/trainjob-transformers.yaml")
JOB = "trainjob-transformers"
SUBJECT = Subject("trainjob", JOB, "train_job_name")
NODE_0 = f"train_job_name={JOB},job_type=node"
JOB_TIMEOUT_SECONDS = 300
SAMPLE_IMAGE = "localhost/transformers"
# The Trainer reports every five seconds.
PACE = {"STEPS": "150", "STEP_SECONDS": "0.2"}
DESCRIBE = f"kubectl tfjob describe trainjob/{JOB}"
_SHOWN = ("Progress ", "Metrics ")
_TIMEOUT_SECONDS = 60


@dataclass(slots=True)
class Reports:
    """Shows what the plugin says of the job whenever it has reported something new."""

    kubectl: Kubectl
    screen: Screen
    progress: str = ""
    percentages: list[int] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)

    def look(self, job: Object) -> None:
        status = job.get("status", {})
        if status.get("progress", "") == self.progress:
            return
        self.progress = status["progress"]
        self.percentages.append(status.get("trainerStatus", {}).get("progressPercentage", 0))
        self.losses += [float(each["value"]) for each in status.get("metrics", ()) if each["name"] == "loss"]
        for line in self._described():
            self.screen.output(f"    {line}")

    def _described(self) -> list[str]:
        """Returns the lines of the plugin on progress and metrics."""
        command = [sys.executable, "-m", "tfjob_controller.kubectl", "describe", f"trainjob/{JOB}"]
        environment = {**os.environ, "KUBECONFIG": str(self.kubectl.kubeconfig)}
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False
        )
        return [line for line in done.stdout.splitlines() if line.startswith(_SHOWN)] or [done.stderr.strip()]


def main() -> int:
    """Runs the demo and returns the exit code."""
    image = Image("--image", "TRANSFORMERS_IMAGE", SAMPLE_IMAGE, "image with transformers that the cluster can pull")
    commands = (DESCRIBE, f"kubectl get trainjob {JOB} -o jsonpath='{{.status.trainerStatus}}'")
    page = "docs/training-metrics.md"
    return perform(Play("demo-transformers", __doc__ or "", image, run, SAMPLE, commands, page, reports=True))


def run(stage: Stage, screen: Screen, image: str) -> list[Check]:
    """Runs the job: apply, follow its reports, log, checks. Returns the checks."""
    kubectl = stage.kubectl
    remove_earlier(stage, screen, SUBJECT)
    kubectl.run("apply", "--server-side", "-k", str(ROOT / RUNTIMES))
    apply_slowed(kubectl, screen, SAMPLE, slowed(SAMPLE, image, PACE), PACE)
    screen.step(f"{DESCRIBE}   (its progress and metrics, at each report)")
    reports = Reports(kubectl, screen)
    seen = follow(kubectl, SUBJECT, screen, JOB_TIMEOUT_SECONDS, reports.look)
    screen.blank()
    show(kubectl, screen, f"kubectl logs -l {NODE_0} --tail=3")
    show(kubectl, screen, "kubectl get trainjobs")
    return [check_job(seen.job, "SUCCESS"), check_progress(reports), check_loss(reports)]


def check_progress(reports: Reports) -> Check:
    """Checks that the progress rose to 100 % with at least one report in between."""
    seen = reports.percentages
    holds = len(seen) > 2 and seen == sorted(seen) and seen[-1] == 100
    return Check(holds, f"it reported {', '.join(f'{each} %' for each in seen) or 'nothing'}")


def check_loss(reports: Reports) -> Check:
    before, after = (reports.losses[0], reports.losses[-1]) if reports.losses else (0.0, 0.0)
    return Check(bool(reports.losses) and after < before, f"it reported a loss of {before:.4f} and at last {after:.4f}")


if __name__ == "__main__":
    sys.exit(main())
