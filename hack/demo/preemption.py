"""`make demo-preemption`: an urgent job takes the place of one that trains, which then continues from its checkpoint.

Real PyTorch on two real nodes, whose simulated GPUs the first job holds. A job of higher priority comes: the gang
scheduler asks for all pods of the first one, the urgent job runs in their place, and afterwards the first job goes on
from the checkpoint that it saved last, without a restart that counts.

Exit code 0 only if all of this was observed. Ctrl-C stops everything that the demo has started.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import yaml

from demo import resume
from demo.autoscalestage import GPU, GPUS_PER_NODE, NODES, open_autoscale_stage
from demo.checks import Check
from demo.follow import DemoError
from demo.kubectl import Kubectl
from demo.ownstage import OwnStage, Setting
from demo.play import perform_alone
from demo.screen import Screen
from demo.steps import ROOT, RUNTIMES, show, slowed
from localcluster import images, state

Object = dict[str, Any]

NAME = "demo-preemption"
SETTING = Setting(
    NAME,
    NODES,
    images=(images.TORCH, images.INITIALIZER),
    extender=("--preemption=on", "--preempt-after=3s", "--preemption-grace=5s"),
)
POLL_SECONDS = 0.5
# For each step.
TIMEOUT_SECONDS = 240.0
FIRST, URGENT = resume.JOB, "urgent"
SETTINGS = {"STEPS": "200", "STEP_SECONDS": "0.1"}
JOBS = "/apis/kubeflow.org/v2alpha1/namespaces/default/trainjobs"
PODS = "/api/v1/namespaces/default/pods"
REQUESTS = {"cpu": "200m", "memory": "256Mi", GPU: str(GPUS_PER_NODE)}
PRIORITY_CLASS: Object = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": URGENT},
    "value": 1000,
    "description": "Gangs of this class preempt others.",
}
# The class counts once the API server has admitted a pod of the namespace with it.
ADMITTED_POD: Object = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": f"{URGENT}-allowed"},
    "spec": {
        "priorityClassName": URGENT,
        "schedulingGates": [{"name": "example.com/never-runs"}],
        "containers": [{"name": "main", "image": images.TORCH}],
    },
}
_BEGIN = re.compile(r"^continues after step (\d+)$", re.MULTILINE)


def main() -> int:
    """Runs the demo and returns the exit code."""
    return perform_alone("this demo needs a full cluster and starts its own", perform)


def perform(screen: Screen) -> bool:
    """Runs the demo on its cluster. Returns whether all checks hold."""
    with open_autoscale_stage(screen, SETTING) as stage, resume.bucket(state.stack_dir(NAME)) as url:
        passed = screen.checks(Demo(stage, screen).run(url))
        farewell(screen)
        return passed


def first_job() -> list[Object]:
    """Returns the sample of checkpoints as a gang that holds all GPUs, slowed down so that it can be followed."""
    objects = slowed(resume.SAMPLE, images.TORCH, SETTINGS)
    spec = objects[-1]["spec"]
    spec["gang"] = {"enabled": True}
    spec["trainer"]["resourcesPerNode"] = {"requests": REQUESTS, "limits": {GPU: REQUESTS[GPU]}}
    return objects


def urgent_job() -> Object:
    """Returns a job of higher priority that needs all GPUs for some seconds."""
    trainer = {
        "image": images.TORCH,
        "command": ["sh", "-c", "echo urgent work; sleep 5"],
        "resourcesPerNode": {"requests": REQUESTS, "limits": {GPU: REQUESTS[GPU]}},
    }
    spec = {
        "framework": "plain",
        "numNodes": NODES,
        "gang": {"enabled": True, "priority": 1000},
        "trainer": trainer,
        "podSpecOverrides": [{"targetJobs": [{"name": "node"}], "priorityClassName": URGENT}],
    }
    return {"apiVersion": "kubeflow.org/v2alpha1", "kind": "TrainJob", "metadata": {"name": URGENT}, "spec": spec}


@dataclass(slots=True)
class Demo:
    """The parts of the demo, in order."""

    stage: OwnStage
    screen: Screen
    began: float = field(default_factory=time.monotonic)
    said: dict[str, str] = field(default_factory=dict)
    # Whether pods of both jobs ever ran at the same time.
    overlapped: bool = False
    # The steps after which the processes of the first job's first node went on.
    resumed: list[int] = field(default_factory=list)

    @property
    def kubectl(self) -> Kubectl:
        return self.stage.kubectl

    def run(self, url: str) -> list[Check]:
        """Runs all parts. Raises `DemoError` if an expected state is not reached."""
        self.kubectl.run("apply", "--server-side", "-k", str(ROOT / RUNTIMES))
        self.kubectl.run("apply", "-f", "-", stdin=json.dumps(resume.credentials(url)))
        self.kubectl.run("apply", "-f", "-", stdin=json.dumps(PRIORITY_CLASS))
        self.kubectl.run("apply", "-f", "-", stdin=json.dumps(ADMITTED_POD))
        self.screen.title(f"1. {FIRST}: two nodes with {GPUS_PER_NODE} GPUs each, which is the whole cluster")
        self.screen.output(self.kubectl.run("apply", "-f", "-", stdin=yaml.safe_dump_all(first_job(), sort_keys=False)))
        self._until(f"{FIRST} to save a checkpoint", lambda jobs: bool(_checkpoint(jobs, FIRST)))
        self.screen.title(f"2. {URGENT}: gang.priority 1000, of the PriorityClass {URGENT}. It needs all GPUs as well")
        self.screen.output(self.kubectl.run("apply", "-f", "-", stdin=json.dumps(urgent_job())))
        self._until(f"{FIRST} to be preempted", lambda jobs: _is(jobs, FIRST, "Preempted"))
        self._show("kubectl get trainjobs,gangs")
        self._until(f"{URGENT} to run", lambda jobs: _is(jobs, URGENT, "Running"))
        self._show(f"kubectl describe trainjob {FIRST}", "Preempted")
        self._until(f"{URGENT} to end", lambda jobs: _phase(jobs, URGENT) in ("Done", "Failed"))
        jobs = self._look()
        saved, urgent = _checkpoint(jobs, FIRST), _phase(jobs, URGENT)
        self.screen.title(f"3. {FIRST} continues from {saved}")
        # Its pods may be gone soon after its end.
        self._until(f"{FIRST} to go on from a checkpoint", lambda jobs: self._has_gone_on())
        self._until(f"{FIRST} to end", lambda jobs: _phase(jobs, FIRST) in ("Done", "Failed"))
        self._show(f"kubectl events --for trainjob/{FIRST}")
        return [self._check_urgent(urgent), _check_resumed(self.resumed, saved), self._check_end()]

    def _check_urgent(self, phase: str) -> Check:
        text = f"the urgent job ended {phase}, and no pod of one job ran beside one of the other"
        return Check(phase == "Done" and not self.overlapped, text)

    def _has_gone_on(self) -> bool:
        self.resumed = [int(step) for step in _BEGIN.findall(resume.log_of(self.kubectl, "node"))]
        return bool(self.resumed)

    def _check_end(self) -> Check:
        status = self._look()[FIRST].get("status", {})
        restarts = status.get("restarts", 0)
        text = f"{FIRST} ended {status.get('phase')} with {restarts} restarts"
        return Check(status.get("phase") == "Done" and restarts == 0, text)

    def _until(self, what: str, predicate: Callable[[dict[str, Object]], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while True:
            jobs = self._look()
            if predicate(jobs):
                return
            if time.monotonic() > deadline:
                raise DemoError(f"not within {TIMEOUT_SECONDS:.0f} s: {what}; logs: {self.stage.logs}")
            time.sleep(POLL_SECONDS)

    def _look(self) -> dict[str, Object]:
        """Reads the jobs, and prints a line for each that has changed."""
        jobs = {str(each["metadata"]["name"]): each for each in self.stage.api.list(JOBS)}
        for name, job in sorted(jobs.items()):
            status = job.get("status", {})
            checkpoint = _checkpoint(jobs, name)
            parts = (status.get("summary", ""), f"checkpoint {checkpoint}" if checkpoint else "", status.get("reason"))
            words = ", ".join(each for each in parts if each)
            if words and self.said.get(name) != words:
                self.said[name] = words
                self.screen.output(f"{time.monotonic() - self.began:5.1f} s  {name}: {words}")
        running = {
            each["metadata"]["labels"].get("train_job_name")
            for each in self.stage.api.list(PODS)
            if each["status"].get("phase") == "Running"
        }
        self.overlapped |= {FIRST, URGENT} <= running
        return jobs

    def _show(self, command: str, only: str = "") -> None:
        self.screen.blank()
        show(self.kubectl, self.screen, command, only=only)


def _check_resumed(after: list[int], saved: str) -> Check:
    """Checks that each process went on after the step of the checkpoint that was saved last."""
    wanted = int(re.sub(r"\D", "", saved) or 0)
    text = f"{FIRST} went on after step {after[-1] if after else '?'}; its last checkpoint was {saved}"
    return Check(set(after) == {wanted}, text)


def _phase(jobs: dict[str, Object], name: str) -> str:
    return str(jobs.get(name, {}).get("status", {}).get("phase", ""))


def _is(jobs: dict[str, Object], name: str, condition: str) -> bool:
    found = jobs.get(name, {}).get("status", {}).get("conditions", ())
    return any(each["type"] == condition and each["status"] == "True" for each in found)


def _checkpoint(jobs: dict[str, Object], name: str) -> str:
    return str((jobs.get(name, {}).get("status", {}).get("checkpoint") or {}).get("name", ""))


def farewell(screen: Screen) -> None:
    """Prints what to do next."""
    screen.blank()
    screen.output(
        "Next:\n"
        "  tfjob-controller extender --preemption=on     # off by default\n"
        "  spec: {gang: {enabled: true, priority: 1000}}, and a priorityClassName with at least that value\n"
        "  spec: {checkpoint: {storageUri: s3://…}}      # what is preempted loses what it has not saved\n"
        "docs/gang-scheduling.md#preemption describes who leaves for whom."
    )


if __name__ == "__main__":
    sys.exit(main())
