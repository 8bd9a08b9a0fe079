"""Starts a cluster and the controller, runs the example job, and shows each step.

It passes only if the job is Done/Succeeded *and* the master's log holds the right numbers *and* its pods used both
nodes.
"""

from __future__ import annotations

from pathlib import Path

from demo.play import Scene
from demo.sample import Sample, check_job, check_spread, run_sample, show_end
from demo.screen import Check
from demo.stage import Cluster, Stage
from localcluster import images

SAMPLE = Sample(Path("manifests/samples/example-job.yaml"), "tfjob", images.TENSORFLOW)
MASTER = f"tf_job_name={SAMPLE.name},job_type=MASTER"
# 1 master, 1 worker, 2 parameter servers: task n computes 2n + 3(n+1), and 8 + 13 + 18 + 23 = 62.
RIGHT_SUM = "sum over 4 replicas: 62"
ALL_WORKERS = "1 of 1 workers computed the same"
# Start-up output of TensorFlow, among it absl's `I0000 …` lines.
_NOISE = ("I0000", "W0000", "E0000", "WARNING: All log messages", "To enable the")


def run(stage: Stage) -> list[Check]:
    followed = run_sample(stage, SAMPLE)
    with stage.screen.command(f"kubectl logs -l {MASTER}"):
        log = stage.kubectl.run("logs", "-l", MASTER, "--tail=-1")
        stage.screen.output("\n".join(line for line in log.splitlines() if not line.startswith(_NOISE)))
    show_end(stage, SAMPLE)
    return [check_job(followed.job, "Succeeded"), check_log(log), *check_spread(stage.own_nodes, followed)]


def check_log(log: str) -> Check:
    holds = RIGHT_SUM in log and ALL_WORKERS in log
    return Check(holds, f"the master's log {'holds' if holds else 'lacks'} the right numbers ({RIGHT_SUM})")


SCENE = Scene(
    target="demo",
    description=__doc__ or "",
    cluster=Cluster(images=(SAMPLE.image,)),
    run=run,
    page="docs/quickstart.md",
    sample=SAMPLE,
    variable="TF_IMAGE",
    commands=(
        "kubectl get tfjobs,jobs,pods -o wide",
        f"kubectl describe tfjob {SAMPLE.name}",
        "kubectl apply -f manifests/samples/train-ps.yaml",
    ),
)
