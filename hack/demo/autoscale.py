"""`make demo-autoscale`: a training job releases workers for another one, and gets them back when that has ended.

Real TensorFlow on two real nodes. The first job has as many workers as fit. There is no capacity for a second
one, so the first shrinks, both run, and the first grows again after the second has ended. No remaining worker is
restarted.

Exit code 0 only if all of this was observed. Ctrl-C stops everything that the demo has started.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.live import Live

from demo.autoscalejobs import (
    FIRST,
    FIRST_STEPS,
    LEAST,
    MOST,
    SECOND,
    SECOND_STEPS,
    SECOND_WORKERS,
    Holder,
    Object,
    Seen,
    holders,
    line,
    logged_steps,
    manifests,
    running,
    table,
)
from demo.autoscalestage import SCALE_DOWN_AFTER, SCALE_UP_AFTER, open_autoscale_stage
from demo.checks import Check
from demo.follow import DemoError
from demo.ownstage import OwnStage
from demo.play import perform_alone
from demo.screen import Screen
from demo.steps import ROOT, show

SAMPLE = Path("manifests/samples/train-elastic.yaml")
POLL_SECONDS = 0.3
# For each step. On an idle machine all of them together take less than two minutes.
TIMEOUT_SECONDS = 120.0
PODS = "/api/v1/namespaces/default/pods"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
JOBS = "/apis/kubeflow.org/v1alpha1/namespaces/default/tfjobs"
WORKER_0 = f"tf_job_name={FIRST},job_type=WORKER,task_index=0"
CHIEF_OF_SECOND = f"tf_job_name={SECOND},job_type=WORKER,task_index=0"

Show = Callable[["Snapshot"], None]


def main() -> int:
    """Runs the demo and returns the exit code."""
    return perform_alone("this demo needs a full cluster and starts its own", perform)


def perform(screen: Screen) -> bool:
    """Runs the demo on its cluster. Returns whether all checks hold."""
    with open_autoscale_stage(screen) as stage:
        passed = screen.checks(Demo(stage, screen).run())
        farewell(screen)
        return passed


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of the cluster at one time."""

    holders: list[Holder]
    jobs: dict[str, Object]
    seconds: float

    def status(self, job: str) -> Object:
        status: Object = self.jobs.get(job, {}).get("status", {})
        return status

    def steps(self, job: str) -> int:
        """Returns the steps of all workers together, as the controller has read them from the logs."""
        done: int = (self.status(job).get("progress") or {}).get("done", 0)
        return done

    def workers(self, job: str) -> int:
        """Returns the number of workers that run and are not being deleted."""
        return running(self.holders, job, "worker")

    def has(self, job: str, workers: int) -> bool:
        """Reports whether that many workers and the parameter server run, without other pods of the job."""
        present = sum(each.job == job for each in self.holders)
        return self.workers(job) == workers and running(self.holders, job) == present == workers + 1

    def notes(self) -> dict[str, str]:
        return {name: _note(job.get("status", {})) for name, job in sorted(self.jobs.items())}


def _note(status: Object) -> str:
    progress = status.get("progress") or {}
    steps = f"{progress.get('done', 0)} of {progress['total']} steps" if progress.get("total") else ""
    return ", ".join(part for part in (str(status.get("phase", "")), steps, str(status.get("reason", ""))) if part)


@dataclass(slots=True)
class Demo:
    """The parts of the demo, in order."""

    stage: OwnStage
    screen: Screen
    began: float = field(default_factory=time.monotonic)
    seen: Seen = field(default_factory=Seen)

    def run(self) -> list[Check]:
        """Runs all parts. Raises `DemoError` if an expected state is not reached."""
        jobs = manifests((ROOT / SAMPLE).read_text())
        self._fill(jobs[FIRST])
        before, steps_before = self._first_pods(), self._steps_of_first()
        self._release_capacity(jobs[SECOND])
        self._both_run()
        self._second_ends()
        self._grow_again()
        return [
            Check(True, f"the first job released {MOST - LEAST} workers for the second and got them back"),
            *self._untouched(before, steps_before),
            self._counted(),
        ]

    def _fill(self, manifest: list[Object]) -> None:
        what = f"a parameter server and {MOST} workers, at least {LEAST}"
        self.screen.title(f"1. {FIRST}: {what}. It fills the cluster")
        self._create(manifest)
        self._until(f"{FIRST} to run with {MOST} workers", FIRST, lambda now: now.has(FIRST, MOST))
        self._until(f"{FIRST} to train", FIRST, lambda now: now.steps(FIRST) > 0)
        self.screen.output(f"It trains for {FIRST_STEPS} steps, which the parameter server counts.")

    def _release_capacity(self, manifest: list[Object]) -> None:
        what = f"{SECOND}: a parameter server and {SECOND_WORKERS} workers. There is no capacity"
        self.screen.title(f"2. {what}; after {SCALE_DOWN_AFTER} the gang scheduler requests some of {FIRST}")
        self._create(manifest)
        self._until(
            f"{SECOND} to wait for capacity", SECOND, lambda now: "needs" in now.status(SECOND).get("reason", "")
        )
        self._show("kubectl get gangs")
        self._until(
            f"{FIRST} to be shrunk to {LEAST} workers", SECOND, lambda now: _workers_asked(now.jobs, FIRST) == LEAST
        )
        self.screen.output(
            f"The number is written to spec.workerReplicas of {FIRST}, as by kubectl scale. Workers on other nodes "
            f"than its parameter server are removed first; their capacity is reserved for {SECOND}."
        )

    def _both_run(self) -> None:
        self._until(
            f"both to run, {FIRST} with {LEAST} workers and {SECOND} with {SECOND_WORKERS}",
            SECOND,
            lambda now: now.has(FIRST, LEAST) and now.has(SECOND, SECOND_WORKERS),
        )
        self.screen.title(f"3. Both run until {SECOND} has completed its {SECOND_STEPS} steps")
        self._show("kubectl get tfjobs")
        self._show("kubectl get gangs")

    def _second_ends(self) -> None:
        self._until(f"{SECOND} to end", SECOND, lambda now: now.status(SECOND).get("phase") in ("Done", "Failed"))

    def _grow_again(self) -> None:
        self.screen.title(
            f"4. The cluster has capacity and no job waits: {FIRST} gets a worker back every {SCALE_UP_AFTER}"
        )
        self._until(f"{FIRST} to run with {MOST} workers again", FIRST, lambda now: now.has(FIRST, MOST))
        self._show(f"kubectl events --for tfjob/{FIRST}", only="Resized")

    def _untouched(self, before: dict[str, int], steps_before: int) -> Iterator[Check]:
        after = self._first_pods()
        stayed = [name for name, restarts in before.items() if after.get(name) == restarts]
        text = f"{LEAST + 1} of its pods ran all the time without a restart"
        yield Check(len(stayed) == LEAST + 1, text)
        steps = self._steps_of_first()
        text = f"it continued training: {steps_before} steps before, {steps} of {FIRST_STEPS} now"
        yield Check(steps > steps_before, text)

    def _counted(self) -> Check:
        log = self.stage.kubectl.run("logs", "-l", CHIEF_OF_SECOND, "--tail=-1")
        said = next((each for each in log.splitlines() if each.startswith("steps counted")), "no steps counted")
        words = f"steps counted: {SECOND_STEPS} of {SECOND_STEPS}"
        return Check(said.startswith(words), f"{SECOND}, counted by TensorFlow: {said}")

    def _create(self, manifest: list[Object]) -> None:
        names = ", ".join(f"{each['kind']} {each['metadata']['name']}" for each in manifest)
        with self.screen.command(f"kubectl create -f {names}"):
            body = {"apiVersion": "v1", "kind": "List", "items": manifest}
            self.screen.output(self.stage.kubectl.run("create", "-f", "-", stdin=json.dumps(body)))

    def _until(self, what: str, whom: str, predicate: Callable[[Snapshot], bool]) -> None:
        """Shows changes until the predicate holds. The status of the job `whom` explains a timeout."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        with self._showing() as show:
            while True:
                now = self._look()
                show(now)
                if predicate(now):
                    return
                if now.status(whom).get("phase") == "Failed":
                    raise DemoError(f"waiting for {what}: {whom} failed: {now.status(whom).get('reason')}")
                if time.monotonic() > deadline:
                    why = now.status(whom).get("reason") or "see the jobs' events"
                    raise DemoError(
                        f"not within {TIMEOUT_SECONDS:.0f} s: {what}. {whom}: {why}; logs: {self.stage.logs}"
                    )
                time.sleep(POLL_SECONDS)

    @contextmanager
    def _showing(self) -> Iterator[Show]:
        """Yields a function that updates a live table on a terminal, or prints a line for each change."""
        nodes = [node["metadata"]["name"] for node in self.stage.api.list("/api/v1/nodes")]
        if not self.screen.is_live:
            yield lambda now: self._print(now, nodes)
            return
        with Live(console=self.screen.console, refresh_per_second=4) as live:

            def show(now: Snapshot) -> None:
                self._print_events(now)
                live.update(table(now.holders, nodes, now.notes(), now.seconds))

            yield show

    def _print(self, now: Snapshot, nodes: list[str]) -> None:
        self._print_events(now)
        if self.seen.is_new(words := line(now.holders, nodes)):
            self.screen.output(f"{now.seconds:5.1f} s  {words}")

    def _print_events(self, now: Snapshot) -> None:
        for words in self.seen.news(self.stage.api.list(EVENTS)):
            self.screen.output(f"{now.seconds:5.1f} s  {words}")

    def _look(self) -> Snapshot:
        api = self.stage.api
        jobs = {each["metadata"]["name"]: each for each in api.list(JOBS)}
        return Snapshot(holders(api.list(PODS)), jobs, time.monotonic() - self.began)

    def _first_pods(self) -> dict[str, int]:
        """Returns the restarts of each pod of the first job, by name."""
        pods = self.stage.api.list(PODS, f"tf_job_name={FIRST}")
        return {
            pod["metadata"]["name"]: sum(each["restartCount"] for each in pod["status"].get("containerStatuses", ()))
            for pod in pods
        }

    def _steps_of_first(self) -> int:
        """Returns the steps of the first job that its worker 0 has logged."""
        return logged_steps(self.stage.kubectl.run("logs", "-l", WORKER_0, "--tail=20"))

    def _show(self, command: str, only: str = "") -> None:
        self.screen.blank()
        show(self.stage.kubectl, self.screen, command, only=only)


def _workers_asked(jobs: dict[str, Object], name: str) -> int | None:
    """Returns the requested number of workers, as in the `scale` subresource of a job."""
    workers: int | None = jobs.get(name, {}).get("spec", {}).get("workerReplicas")
    return workers


def farewell(screen: Screen) -> None:
    """Prints what to do next."""
    screen.blank()
    screen.output(
        "Next:\n"
        f"  kubectl apply -f {SAMPLE}      # resize it by hand: kubectl scale tfjob/train-elastic --replicas=4\n"
        "  spec: {gang: {enabled: true}, autoscaling: {minWorkers: 1, maxWorkers: 4}}\n"
        "  tfjob-controller run --autoscaling=recommend      # reports without resizing\n"
        "docs/autoscaling.md describes what the program must do, when not to use it, and how to tune the delays."
    )


if __name__ == "__main__":
    sys.exit(main())
