"""A job that is resized while it trains ends after exactly as many steps as it should have: TensorFlow counts them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers.controller import Jobs
from helpers.kubectl import MANIFESTS, Kubectl
from helpers.poll import eventually

pytestmark = [pytest.mark.nodes, pytest.mark.usefixtures("tensorflow")]

# A few TensorFlows start on two processors that may be busy otherwise.
PATIENCE_SECONDS = 600.0
PERIOD_SECONDS = 0.5
TOTAL = 1000
# While the file is there a step takes long: the steps must not run out before the job has been resized.
SLOWLY = "0.5 if os.path.exists('/brake/on') else 0"

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Run:
    """One job, from a sample."""

    jobs: Jobs
    kubectl: Kubectl
    name: str
    brake: Path

    def start(self, checkpoints: Path, workers: int) -> None:
        manifest = MANIFESTS / "samples" / f"{self.name}.yaml"
        config_map, job = yaml.safe_load_all(manifest.read_text())
        for name, program in config_map["data"].items():
            config_map["data"][name] = program.replace("sleep(STEP_SECONDS)", f"sleep({SLOWLY})").replace(
                "wait(STEP_SECONDS)", f"wait({SLOWLY})"
            )
        job["spec"]["autoscaling"]["totalSteps"] = TOTAL
        for each in job["spec"]["replicaSpecs"]:
            if each["tfReplicaType"] == "WORKER":
                each["replicas"] = workers
                self._fit(each["template"]["spec"], checkpoints)
        self.kubectl.must("apply", "-f", "-", manifest=yaml.safe_dump_all([config_map, job]))

    def _fit(self, spec: Object, checkpoints: Path) -> None:
        (container,) = spec["containers"]
        container["env"] = [{"name": "SAVE_ROUNDS", "value": "2"}]
        container["volumeMounts"].append({"name": "brake", "mountPath": "/brake"})
        for volume in spec["volumes"]:
            if "hostPath" in volume:
                volume["hostPath"] = {"path": str(checkpoints)}
        spec["volumes"].append({"name": "brake", "hostPath": {"path": str(self.brake.parent)}})

    def scale(self, workers: int) -> None:
        self.kubectl.must("scale", f"tfjob/{self.name}", f"--replicas={workers}")

    def log(self, worker: int) -> str:
        """Of the pod of that worker that is there now; empty while its container has not begun."""
        return next((log for log in self._logs() if log.startswith(f"worker-{worker}: ")), "")

    def _logs(self) -> list[str]:
        """Of each pod of a worker that stays. One call for all: a kubectl for each would take the trainers' time."""
        lines = self.kubectl.run("logs", "-l", "job_type=WORKER", "--prefix", "--tail=-1", "--ignore-errors").out
        staying = [name for name, pod in self._pods().items() if "deletionTimestamp" not in pod["metadata"]]
        by_pod: dict[str, list[str]] = {name: [] for name in staying}
        for pod, said in re.findall(r"^\[pod/([^/]+)/[^]]+\] (.*)$", lines, re.MULTILINE):
            if pod in by_pod and not re.match(r"[IWE]0000 |WARNING: ", said):
                by_pod[pod].append(f"{said}\n")
        return ["".join(said) for said in by_pod.values()]

    def _pods(self) -> dict[str, Object]:
        """Of workers, by name."""
        pods = self.jobs.children("pods")
        return {name: pod for name, pod in pods.items() if pod["metadata"]["labels"]["job_type"] == "WORKER"}

    def await_steps(self, *workers: int, in_step: str = "") -> None:
        """Until each of these has counted steps of its own, with as many others as `in_step` says."""

        def have_counted() -> bool:
            logs = [log for log in self._logs() if in_step in log]
            return all(any(_counts(log, worker) for log in logs) for worker in workers)

        eventually(have_counted, PATIENCE_SECONDS)

    def done(self) -> int:
        """Steps of all workers, as worker 0 has learnt it."""
        said = eventually(lambda: re.findall(r"(\d+) of \d+ by all", self.log(0)), PATIENCE_SECONDS)
        return int(said[-1])

    def await_workers(self, count: int) -> None:
        """Until there are so many pods of workers, and the job says that it has been resized."""
        eventually(lambda: len(self._pods()) == count and not self._is_resizing(), PATIENCE_SECONDS)

    def _is_resizing(self) -> bool:
        conditions = self.jobs.status(self.name)["conditions"]
        return any(each["type"] == "Resizing" and each["status"] == "True" for each in conditions)

    def await_end(self) -> str:
        """The log of worker 0."""
        assert self.done() < TOTAL, "it was not resized in the middle"
        self.brake.unlink()
        eventually(lambda: self.jobs.phase(self.name) in ("Done", "Failed"), PATIENCE_SECONDS)
        status = self.jobs.status(self.name)
        assert (status["phase"], status["state"]) == ("Done", "Succeeded"), (status, self.log(0))
        # A node may be asked in vain once.
        return eventually(lambda: _whole(self.log(0)), PATIENCE_SECONDS)

    def resizes(self) -> list[str]:
        """What its events tell, oldest first."""
        told = [each for each in self.jobs.events() if each["reason"] == "Resized"]
        return [each["note"] for each in sorted(told, key=lambda each: str(each["eventTime"]))]


def _whole(log: str) -> str:
    return log if "loss after: " in log else ""


def _counts(log: str, worker: int) -> bool:
    return any(int(steps) for steps in re.findall(rf"^worker-{worker}: (\d+) steps of my own", log, re.MULTILINE))


@pytest.fixture
def brake(tmp_path: Path) -> Iterator[Path]:
    brake = tmp_path / "brake" / "on"
    brake.parent.mkdir()
    brake.touch()
    yield brake
    brake.unlink(missing_ok=True)


@pytest.mark.long
def test_workers_come_and_go_while_the_others_train(jobs: Jobs, kubectl: Kubectl, brake: Path, tmp_path: Path) -> None:
    run = Run(jobs, kubectl, "train-elastic", brake)
    run.start(tmp_path, workers=2)
    run.await_steps(0, 1)
    run.scale(3)
    run.await_steps(0, 1, 2)
    run.scale(1)
    run.await_workers(1)
    log = run.await_end()
    counted = re.search(rf"^steps counted: {TOTAL} of {TOTAL}, by worker \[(.*)\]$", log, re.MULTILINE)
    assert counted is not None, log
    each = [int(steps) for steps in counted[1].split(", ")]
    assert sum(each) == TOTAL
    # The fourth could have come, but nobody asked for it.
    assert [steps > 0 for steps in each] == [True, True, True, False], each
    assert run.resizes() == [
        "scaled 2 → 3 workers by spec.workerReplicas",
        "scaled 3 → 1 workers by spec.workerReplicas",
    ]
    # Added up from the logs of all workers, those that have left too.
    assert jobs.status(run.name)["progress"]["done"] == TOTAL
    # The same process, from the first step to the last.
    assert jobs.status(run.name).get("restarts", 0) == 0
    assert log.count("my share") == 1


def test_workers_in_step_are_stopped_and_resume_from_their_checkpoint(
    jobs: Jobs, kubectl: Kubectl, brake: Path, tmp_path: Path
) -> None:
    checkpoints = tmp_path / "checkpoints"
    checkpoints.mkdir()
    run = Run(jobs, kubectl, "train-elastic-mirrored", brake)
    run.start(checkpoints, workers=1)
    run.await_steps(0, in_step=" 1 workers in step")
    run.scale(2)
    run.await_steps(0, 1, in_step="2 workers in step")
    run.scale(1)
    run.await_steps(0, in_step=" 1 workers in step")
    run.await_workers(1)
    log = run.await_end()
    assert f"steps counted: {TOTAL} of {TOTAL}\n" in log
    resumed = re.search(rf"^worker-0: (\d+) of {TOTAL} steps were done before$", log, re.MULTILINE)
    assert resumed is not None, log
    assert int(resumed[1]) > 0
    assert run.resizes() == [
        "scaled 1 → 2 workers by spec.workerReplicas",
        "scaled 2 → 1 workers by spec.workerReplicas",
    ]
    # Only what workers say for certain: of the last steps before they were stopped they did not know yet.
    assert TOTAL - int(resumed[1]) <= jobs.status(run.name)["progress"]["done"] <= TOTAL
    assert jobs.status(run.name).get("restarts", 0) == 0, "a resize is nobody's failure"
