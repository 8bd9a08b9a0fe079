"""Starts a cluster and the controller, trains with Hugging Face's Trainer, and shows the progress that it reports.

It passes only if the job is Done/SUCCESS *and* reports from its begin, middle and end were seen *and* its loss fell.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from demo.play import Scene
from demo.sample import Sample, check_job, run_sample
from demo.screen import Check
from demo.stage import Cluster, Object, Stage
from localcluster import images

# The Trainer reports every five seconds.
SAMPLE = Sample(
    path=Path("manifests/samples/trainjob-transformers.yaml"),
    kind="trainjob",
    image=images.TRANSFORMERS,
    settings={"STEPS": "150", "STEP_SECONDS": "0.2"},
)
DESCRIBE = f"kubectl tfjob describe trainjob/{SAMPLE.name}"
_SHOWN = ("Progress ", "Metrics ")
_TIMEOUT_SECONDS = 60


@dataclass(slots=True)
class Reports:
    """Shows what the plugin says of the job whenever it has reported something new."""

    stage: Stage
    progress: str = ""
    percentages: list[int] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)

    def look(self, job: Object) -> None:
        status = job.get("status", {})
        if status.get("progress", "") == self.progress:
            return
        if not self.progress:
            self.stage.screen.step(f"{DESCRIBE}   (its progress and metrics, at each report)")
        self.progress = status["progress"]
        self.percentages.append(status.get("trainerStatus", {}).get("progressPercentage", 0))
        self.losses += [float(metric["value"]) for metric in status.get("metrics", ()) if metric["name"] == "loss"]
        for line in self._described():
            self.stage.screen.output(f"    {line}")

    def _described(self) -> list[str]:
        """Returns the lines of the plugin on progress and metrics."""
        command = [sys.executable, "-m", "tfjob_controller.kubectl", *DESCRIBE.split()[2:]]
        environment = {**os.environ, "KUBECONFIG": str(self.stage.kubectl.kubeconfig)}
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False
        )
        return [line for line in done.stdout.splitlines() if line.startswith(_SHOWN)] or [done.stderr.strip()]


def run(stage: Stage) -> list[Check]:
    reports = Reports(stage)
    followed = run_sample(stage, SAMPLE, reports.look)
    stage.show(f"kubectl logs -l {SAMPLE.node_0} --tail=3")
    stage.show("kubectl get trainjobs")
    return [check_job(followed.job), check_progress(reports.percentages), check_loss(reports.losses)]


def check_progress(percentages: list[int]) -> Check:
    """Checks that the progress rose to 100 % with at least one report in between."""
    holds = len(percentages) > 2 and percentages == sorted(percentages) and percentages[-1] == 100
    return Check(holds, f"it reported {', '.join(f'{percentage} %' for percentage in percentages) or 'nothing'}")


def check_loss(losses: list[float]) -> Check:
    before, after = (losses[0], losses[-1]) if losses else (0.0, 0.0)
    return Check(bool(losses) and after < before, f"it reported a loss of {before:.4f} and at last {after:.4f}")


SCENE = Scene(
    target="demo-transformers",
    description=__doc__ or "",
    cluster=Cluster(images=(SAMPLE.image,), reports=True),
    run=run,
    page="docs/training-metrics.md",
    sample=SAMPLE,
    variable="TRANSFORMERS_IMAGE",
    commands=(DESCRIBE, f"kubectl get trainjob {SAMPLE.name} -o jsonpath='{{.status.trainerStatus}}'"),
)
