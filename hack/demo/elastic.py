"""Starts a cluster and the controller, and resizes a PyTorch job from 2 nodes to 4 and back while it trains.

Exit code 0 only if the job is Done/SUCCESS *and* it trained on 2, 4 and 2 nodes *and* its loss fell *and* no pod was
restarted *and* no more steps were repeated than its checkpoints allow. Ctrl-C stops everything that the demo started.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from demo.checks import Check, check_job
from demo.follow import Subject, follow
from demo.kubectl import Kubectl, KubectlError
from demo.picture import Object
from demo.play import Image, Play, perform, remove_earlier
from demo.screen import Screen
from demo.stage import Stage
from demo.steps import ROOT, RUNTIMES, apply_slowed, show, slowed
from demo.trainjob import SAMPLE_IMAGE

SAMPLE = Path("manifests/samples/trainjob-elastic.yaml")
JOB = "trainjob-elastic"
SUBJECT = Subject("trainjob", JOB, "train_job_name")
NODE_0 = f"train_job_name={JOB},job_type=node,batch.kubernetes.io/job-completion-index=0"
JOB_TIMEOUT_SECONDS = 600
# The sizes of the job, one after another, and the number of progress lines before each change.
SIZES = (2, 4, 2)
LINES = 2
SAVE_STEPS = 20
SETTINGS = {"STEPS": "600", "STEP_SECONDS": "0.1", "SAVE_STEPS": str(SAVE_STEPS)}
_INDEX = "batch.kubernetes.io/job-completion-index"
_PROGRESS = re.compile(r"^step=(\d+) loss=(\S+) world=(\d+)$", re.MULTILINE)
_BEGIN = re.compile(r"^(\d+) processes continue after step (\d+)$", re.MULTILINE)
_END = re.compile(r"^steps done: (\d+), of which (\d+) were repeated$", re.MULTILINE)


@dataclass(slots=True)
class Resizing:
    """Scales the job once it has trained for a while at the previous size. `log` is the output of node 0 so far."""

    kubectl: Kubectl
    screen: Screen
    log: str = ""
    # When a size was requested, and how long it took until the job trained with it.
    requested: float = 0.0
    seconds: list[float] = field(default_factory=list)
    # The index of each observed pod, by its UID.
    pods: dict[str, str] = field(default_factory=dict)

    @property
    def sizes(self) -> list[int]:
        """The sizes at which steps were reported, one after another."""
        worlds = [int(world) for _, _, world in _PROGRESS.findall(self.log)]
        return [world for index, world in enumerate(worlds) if index == 0 or worlds[index - 1] != world]

    def look(self, job: Object) -> None:
        self._read()
        worlds = [int(world) for _, _, world in _PROGRESS.findall(self.log)]
        done = len(self.seconds)
        if self.requested and worlds[-1:] == [SIZES[done + 1]]:
            self.seconds.append(time.monotonic() - self.requested)
            self.requested = 0.0
            self.screen.output(f"  it trains on {SIZES[done + 1]} nodes {self.seconds[-1]:.0f} s after the request")
        elif not self.requested and done + 1 < len(SIZES) and worlds[-LINES:] == [SIZES[done]] * LINES:
            self.screen.step(f"kubectl scale trainjob/{JOB} --replicas={SIZES[done + 1]}")
            self.screen.output(self.kubectl.run("scale", f"trainjob/{JOB}", f"--replicas={SIZES[done + 1]}"))
            self.requested = time.monotonic()

    def _read(self) -> None:
        try:
            self.log = self.kubectl.run("logs", "-l", NODE_0, "--tail=-1")
        except KubectlError:  # no node runs yet
            return
        for pod in self.kubectl.items("pods", SUBJECT.selector):
            self.pods[pod["metadata"]["uid"]] = pod["metadata"]["labels"][_INDEX]


def main() -> int:
    """Runs the demo and returns the exit code."""
    image = Image("--image", "TORCH_IMAGE", SAMPLE_IMAGE, "image with PyTorch that the cluster can pull")
    commands = (f"kubectl describe trainjob {JOB}", f"kubectl logs -l {NODE_0} --tail=-1")
    return perform(Play("demo-elastic", __doc__ or "", image, run, SAMPLE, commands, "docs/trainjob.md"))


def run(stage: Stage, screen: Screen, image: str) -> list[Check]:
    """Runs the job: apply, scale while it trains, log, checks. Returns the checks."""
    kubectl = stage.kubectl
    remove_earlier(stage, screen, SUBJECT)
    kubectl.run("apply", "--server-side", "-k", str(ROOT / RUNTIMES))
    folder = Path(f"/tmp/{JOB}-{os.getpid()}")  # noqa: S108 -- it is the sample's folder, which all nodes share
    apply_slowed(kubectl, screen, SAMPLE, in_folder(slowed(SAMPLE, image, SETTINGS), folder), SETTINGS)
    resizing = Resizing(kubectl, screen)
    try:
        seen = follow(kubectl, SUBJECT, screen, JOB_TIMEOUT_SECONDS, resizing.look)
        resizing.look(seen.job)
    finally:
        if stage.own_nodes:
            shutil.rmtree(folder, ignore_errors=True)
    screen.blank()
    show_end(kubectl, screen, resizing)
    return [
        check_job(seen.job, "SUCCESS"),
        check_sizes(resizing),
        check_loss(resizing),
        *check_steps(resizing),
        check_pods(seen.job, resizing),
    ]


def in_folder(objects: list[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    """Gives the TrainJob its own checkpoint folder."""
    (override,) = objects[-1]["spec"]["podSpecOverrides"]
    for volume in override["volumes"]:
        if "hostPath" in volume:
            volume["hostPath"]["path"] = str(folder)
    return objects


def show_end(kubectl: Kubectl, screen: Screen, resizing: Resizing) -> None:
    """Shows the results as a user would."""
    with screen.command(f"kubectl logs -l {NODE_0}   (some lines)"):
        lines = [line for line in resizing.log.splitlines() if _BEGIN.match(line) or _END.match(line)]
        screen.output("\n".join(lines))
    show(kubectl, screen, f"kubectl events --for trainjob/{JOB}")
    show(kubectl, screen, "kubectl get trainjobs")


def check_sizes(resizing: Resizing) -> Check:
    """Checks the sizes. Nodes that join one after another may cause further sizes in between."""
    sizes = resizing.sizes
    wanted = [size for size in sizes if size in SIZES]
    times = ", ".join(f"{seconds:.0f} s" for seconds in resizing.seconds)
    shown = " → ".join(map(str, sizes))
    return Check(wanted == list(SIZES), f"it trained on {shown} nodes; the changes took {times or 'forever'}")


def check_loss(resizing: Resizing) -> Check:
    losses = [float(loss) for _, loss, _ in _PROGRESS.findall(resizing.log)]
    before, after = (losses[0], losses[-1]) if losses else (0.0, 0.0)
    return Check(bool(losses) and after < before / 10, f"loss {before:.4f} → {after:.4f}")


def check_steps(resizing: Resizing) -> list[Check]:
    end, begins = _END.search(resizing.log), _BEGIN.findall(resizing.log)
    if end is None:
        return [Check(False, "node 0 has not logged its number of steps")]
    done, repeated, most = int(end[1]), int(end[2]), SAVE_STEPS * (len(begins) - 1)
    words = (
        f"{done} steps done, {repeated} of them repeated: at most {SAVE_STEPS} for each of {len(begins) - 1} changes"
    )
    return [Check(repeated <= most and done - repeated == int(SETTINGS["STEPS"]), words)]


def check_pods(job: Object, resizing: Resizing) -> Check:
    restarts = job.get("status", {}).get("restarts", 0)
    holds = not restarts and len(resizing.pods) == max(SIZES) == len(set(resizing.pods.values()))
    return Check(holds, f"{len(resizing.pods)} pods for {max(SIZES)} nodes, and {restarts} restarts are counted")


if __name__ == "__main__":
    sys.exit(main())
