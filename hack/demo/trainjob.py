"""Starts a cluster and the controller, trains a PyTorch model on two nodes, and shows its progress.

It passes only if the job is Done/SUCCESS *and* its loss fell *and* all four ranks agree *and* its metrics were seen at
/metrics while it ran *and* its pods used both nodes.
"""

from __future__ import annotations

import contextlib
import re
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

from demo.play import Scene
from demo.sample import Sample, check_job, check_spread, run_sample, show_end
from demo.screen import Check
from demo.stage import Cluster, Object, Stage
from localcluster import images

# It is slowed down, since it ends within a second.
SAMPLE = Sample(
    path=Path("manifests/samples/trainjob-torch.yaml"),
    kind="trainjob",
    image=images.TORCH,
    settings={"STEPS": "150", "STEP_SECONDS": "0.15"},
)
RANKS = 4
_SERIES = "tfjob_training_metric{"


@dataclass(slots=True)
class Scrape:
    """The last observed series of the job at /metrics."""

    url: str
    series: dict[str, str] = field(default_factory=dict)

    def look(self, job: Object) -> None:
        with contextlib.suppress(OSError), urllib.request.urlopen(self.url, timeout=2) as answer:
            lines = answer.read().decode().splitlines()
            self.series.update(dict(line.rsplit(" ", 1) for line in lines if line.startswith(_SERIES)))


def run(stage: Stage) -> list[Check]:
    scrape = Scrape(stage.metrics_url)
    followed = run_sample(stage, SAMPLE, scrape.look)
    with stage.screen.command(f"kubectl logs -l {SAMPLE.node_0} --tail=5"):
        log = stage.kubectl.run("logs", "-l", SAMPLE.node_0, "--tail=-1")
        stage.screen.output("\n".join(log.splitlines()[-5:]))
    with stage.screen.command("curl /metrics   (while it ran)"):
        stage.screen.output("\n".join(f"{name} {value}" for name, value in sorted(scrape.series.items())))
    show_end(stage, SAMPLE)
    spread = check_spread(stage.own_nodes, followed)
    return [check_job(followed.job), check_training(log), check_metrics(followed.job, scrape), *spread]


def check_training(log: str) -> Check:
    """Checks the last lines of rank 0."""
    end = re.search(r"^rank 0: loss (\S+) -> (\S+), (\d+) ranks agree$", log, re.MULTILINE)
    if end is None:
        return Check(False, "the log of node 0 does not show that the ranks agree")
    before, after, ranks = float(end[1]), float(end[2]), int(end[3])
    return Check(after < before / 10 and ranks == RANKS, f"loss {before} -> {after}, {ranks} of {RANKS} ranks agree")


def check_metrics(job: Object, scrape: Scrape) -> Check:
    """Checks the metrics in the status and, while the job ran, at /metrics."""
    names = {metric["name"] for metric in job.get("status", {}).get("metrics", ())}
    served = any('metric="loss"' in series for series in scrape.series)
    holds = {"loss", "step"} <= names and served
    return Check(holds, f"metrics in the status: {', '.join(sorted(names)) or 'none'}; loss at /metrics: {served}")


SCENE = Scene(
    target="demo-trainjob",
    description=__doc__ or "",
    cluster=Cluster(images=(SAMPLE.image,)),
    run=run,
    page="docs/trainjob.md",
    sample=SAMPLE,
    variable="TORCH_IMAGE",
    commands=(
        "kubectl get trainjobs,jobs,pods -o wide",
        f"kubectl describe trainjob {SAMPLE.name}",
        "kubectl apply -f manifests/samples/trainjob-plain.yaml",
    ),
)
