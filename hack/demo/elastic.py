"""Starts a cluster and the controller, and resizes a PyTorch job from 2 nodes to 4 and back while it trains.

It passes only if the job is Done/SUCCESS *and* it trained on 2, 4 and 2 nodes *and* its loss fell *and* no pod was
restarted *and* no more steps were repeated than its checkpoints allow.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from demo.kubectl import KubectlError
from demo.play import Scene
from demo.sample import Sample, check_job, run_sample, show_end
from demo.screen import Check
from demo.stage import Cluster, Object, Stage
from localcluster import images

SAVE_STEPS = 20
SAMPLE = Sample(
    path=Path("manifests/samples/trainjob-elastic.yaml"),
    kind="trainjob",
    image=images.TORCH,
    settings={"STEPS": "600", "STEP_SECONDS": "0.1", "SAVE_STEPS": str(SAVE_STEPS)},
    timeout_seconds=600,
)
# The sizes of the job, one after another, and the number of progress lines before each change.
SIZES = (2, 4, 2)
LINES = 2
_INDEX = "batch.kubernetes.io/job-completion-index"
_PROGRESS = re.compile(r"^step=(\d+) loss=(\S+) world=(\d+)$", re.MULTILINE)
_BEGIN = re.compile(r"^(\d+) processes continue after step (\d+)$", re.MULTILINE)
_END = re.compile(r"^steps done: (\d+), of which (\d+) were repeated$", re.MULTILINE)


@dataclass(slots=True)
class Resizing:
    """Scales the job once it has trained for a while at the previous size. `log` is the output of node 0 so far."""

    stage: Stage
    log: str = ""
    # When a size was requested, and how long it took until the job trained with it.
    requested: float = 0.0
    seconds: list[float] = field(default_factory=list)
    # The index of each observed pod, by its UID.
    pods: dict[str, str] = field(default_factory=dict)

    def look(self, job: Object) -> None:
        self._read()
        worlds, done = self._worlds(), len(self.seconds)
        if self.requested and worlds[-1:] == [SIZES[done + 1]]:
            self.seconds.append(time.monotonic() - self.requested)
            self.requested = 0.0
            text = f"  it trains on {SIZES[done + 1]} nodes {self.seconds[-1]:.0f} s after the request"
            self.stage.screen.output(text)
        elif not self.requested and done + 1 < len(SIZES) and worlds[-LINES:] == [SIZES[done]] * LINES:
            command = ("scale", f"trainjob/{SAMPLE.name}", f"--replicas={SIZES[done + 1]}")
            self.stage.screen.step(f"kubectl {' '.join(command)}")
            self.stage.screen.output(self.stage.kubectl.run(*command))
            self.requested = time.monotonic()

    def _read(self) -> None:
        try:
            self.log = self.stage.kubectl.run("logs", "-l", SAMPLE.node_0, "--tail=-1")
        except KubectlError:  # no node runs yet
            return
        for pod in self.stage.kubectl.items("pods", SAMPLE.subject.selector):
            self.pods[pod["metadata"]["uid"]] = pod["metadata"]["labels"][_INDEX]

    def _worlds(self) -> list[int]:
        return [int(world) for _, _, world in _PROGRESS.findall(self.log)]

    def check_sizes(self) -> Check:
        """Checks the sizes. Nodes that join one after another may cause further sizes in between."""
        worlds = self._worlds()
        sizes = [world for index, world in enumerate(worlds) if index == 0 or worlds[index - 1] != world]
        times = ", ".join(f"{seconds:.0f} s" for seconds in self.seconds)
        text = f"it trained on {' → '.join(map(str, sizes))} nodes; the changes took {times or 'forever'}"
        return Check([size for size in sizes if size in SIZES] == list(SIZES), text)

    def check_loss(self) -> Check:
        losses = [float(loss) for _, loss, _ in _PROGRESS.findall(self.log)]
        before, after = (losses[0], losses[-1]) if losses else (0.0, 0.0)
        return Check(bool(losses) and after < before / 10, f"loss {before:.4f} → {after:.4f}")

    def check_steps(self) -> Check:
        end, changes = _END.search(self.log), len(_BEGIN.findall(self.log)) - 1
        if end is None:
            return Check(False, "node 0 has not logged its number of steps")
        done, repeated = int(end[1]), int(end[2])
        text = f"{done} steps done, {repeated} of them repeated: at most {SAVE_STEPS} for each of {changes} changes"
        holds = repeated <= SAVE_STEPS * changes and done - repeated == int(SAMPLE.settings["STEPS"])
        return Check(holds, text)

    def check_pods(self, job: Object) -> Check:
        restarts = job.get("status", {}).get("restarts", 0)
        holds = not restarts and len(self.pods) == max(SIZES) == len(set(self.pods.values()))
        return Check(holds, f"{len(self.pods)} pods for {max(SIZES)} nodes, and {restarts} restarts are counted")


def run(stage: Stage) -> list[Check]:
    # All nodes of the local cluster share it.
    folder = Path(f"/tmp/{SAMPLE.name}-{os.getpid()}")  # noqa: S108 -- as in the sample
    resizing = Resizing(stage)
    try:
        followed = run_sample(stage, SAMPLE, resizing.look, lambda objects: save_in(objects, folder))
        resizing.look(followed.job)
    finally:
        if stage.own_nodes:
            shutil.rmtree(folder, ignore_errors=True)
    with stage.screen.command(f"kubectl logs -l {SAMPLE.node_0}   (some lines)"):
        lines = [line for line in resizing.log.splitlines() if _BEGIN.match(line) or _END.match(line)]
        stage.screen.output("\n".join(lines))
    show_end(stage, SAMPLE)
    checks = [resizing.check_sizes(), resizing.check_loss(), resizing.check_steps(), resizing.check_pods(followed.job)]
    return [check_job(followed.job), *checks]


def save_in(objects: Sequence[Object], folder: Path) -> None:
    """Gives the TrainJob a checkpoint folder that no earlier one has used."""
    (override,) = objects[-1]["spec"]["podSpecOverrides"]
    for volume in override["volumes"]:
        if "hostPath" in volume:
            volume["hostPath"]["path"] = str(folder)


SCENE = Scene(
    target="demo-elastic",
    description=__doc__ or "",
    cluster=Cluster(images=(SAMPLE.image,)),
    run=run,
    page="docs/trainjob.md",
    sample=SAMPLE,
    variable="TORCH_IMAGE",
    commands=(f"kubectl describe trainjob {SAMPLE.name}", f"kubectl logs -l {SAMPLE.node_0} --tail=-1"),
)
