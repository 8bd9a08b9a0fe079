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

import yaml

from demo.checks import Check
from demo.follow import Subject, follow
from demo.kubectl import Kubectl
from demo.picture import Object
from demo.play import ROOT, Farewell, Image, Play, perform, remove_earlier
from demo.screen import Screen
from demo.stage import Stage
from demo.trainjob import RUNTIMES, check_end

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
    return perform(Play("make demo-transformers", __doc__ or "", image, run, farewell, reports=True))


def run(stage: Stage, screen: Screen, image: str) -> bool:
    """Runs the job: apply, follow its reports, log, checks. Returns whether all checks hold."""
    kubectl = stage.kubectl
    remove_earlier(stage, screen, SUBJECT)
    kubectl.run("apply", "--server-side", "-k", str(ROOT / RUNTIMES))
    pace = " ".join(f"{name}={value}" for name, value in PACE.items())
    screen.step(f"kubectl apply -f {SAMPLE}   (with {pace})")
    screen.output(kubectl.run("apply", "-f", "-", stdin=manifest(image)))
    screen.blank()
    screen.step(f"{DESCRIBE}   (its progress and metrics, at each report)")
    reports = Reports(kubectl, screen)
    seen = follow(kubectl, SUBJECT, screen, JOB_TIMEOUT_SECONDS, reports.look)
    screen.blank()
    with screen.command(f"kubectl logs -l {NODE_0} --tail=3"):
        screen.output(kubectl.run("logs", "-l", NODE_0, "--tail=3"))
    with screen.command("kubectl get trainjobs"):
        screen.output(kubectl.run("get", "trainjobs"))
    checks = [check_end(seen.job), check_progress(reports), check_loss(reports)]
    for check in checks:
        screen.check(check)
    return all(check.holds for check in checks)


def manifest(image: str) -> str:
    """Returns the sample, slowed down so that it can be followed."""
    objects = list(yaml.safe_load_all((ROOT / SAMPLE).read_text()))
    trainer = objects[-1]["spec"]["trainer"]
    trainer["image"] = image
    trainer["env"] = [{"name": name, "value": value} for name, value in PACE.items()]
    return yaml.safe_dump_all(objects, sort_keys=False)


def check_progress(reports: Reports) -> Check:
    """Checks that the progress rose to 100 % with at least one report in between."""
    seen = reports.percentages
    holds = len(seen) > 2 and seen == sorted(seen) and seen[-1] == 100
    return Check(holds, f"it reported {', '.join(f'{each} %' for each in seen) or 'nothing'}")


def check_loss(reports: Reports) -> Check:
    before, after = (reports.losses[0], reports.losses[-1]) if reports.losses else (0.0, 0.0)
    return Check(bool(reports.losses) and after < before, f"it reported a loss of {before:.4f} and at last {after:.4f}")


def farewell(stage: Stage) -> Farewell:
    """Prints what to try next."""
    return Farewell(
        sample=str(SAMPLE),
        commands=(DESCRIBE, f"kubectl get trainjob {JOB} -o jsonpath='{{.status.trainerStatus}}'"),
        page="docs/training-metrics.md",
        keep="make demo-transformers KEEP=1",
    )


if __name__ == "__main__":
    sys.exit(main())
