"""An urgent job takes the place of one that trains, which then continues from its checkpoint.

Real PyTorch on two real nodes, whose simulated GPUs the first job holds. A job of higher priority comes: the gang
scheduler asks for all pods of the first one, the urgent job runs in their place, and afterwards the first job goes on
from the checkpoint that it saved last, without a restart that counts. It passes only if all of this was observed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from demo import checkpoints
from demo.autoscale import CLUSTER, GPU, GPUS_PER_NODE
from demo.follow import FINISHED_PHASES
from demo.play import Scene
from demo.screen import Check, Timeline
from demo.stage import NODES, Object, Stage, has_condition, wait
from localcluster import images

# For each step.
TIMEOUT_SECONDS = 240.0
FIRST, URGENT = checkpoints.SAMPLE.name, "urgent"
SETTINGS = {"STEPS": "200", "STEP_SECONDS": "0.1"}
JOBS = "/apis/kubeflow.org/v2alpha1/namespaces/default/trainjobs"
PODS = "/api/v1/namespaces/default/pods"
RESOURCES: Object = {
    "requests": {"cpu": "200m", "memory": "256Mi", GPU: str(GPUS_PER_NODE)},
    "limits": {GPU: str(GPUS_PER_NODE)},
}
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


def first_job() -> list[Object]:
    """Returns the sample of checkpoints as a gang that holds all GPUs, slowed down so that it can be followed."""
    objects = replace(checkpoints.SAMPLE, settings=SETTINGS).objects(images.TORCH)
    spec = objects[-1]["spec"]
    spec["gang"] = {"enabled": True}
    spec["trainer"]["resourcesPerNode"] = RESOURCES
    return objects


def urgent_job() -> Object:
    """Returns a job of higher priority that needs all GPUs for some seconds."""
    command = ["sh", "-c", "echo urgent work; sleep 5"]
    spec = {
        "framework": "plain",
        "numNodes": NODES,
        "gang": {"enabled": True, "priority": 1000},
        "trainer": {"image": images.TORCH, "command": command, "resourcesPerNode": RESOURCES},
        "podSpecOverrides": [{"targetJobs": [{"name": "node"}], "priorityClassName": URGENT}],
    }
    return {"apiVersion": "kubeflow.org/v2alpha1", "kind": "TrainJob", "metadata": {"name": URGENT}, "spec": spec}


@dataclass(slots=True)
class Play:
    """The parts of the demo, in order."""

    stage: Stage
    timeline: Timeline
    # Whether pods of both jobs ever ran at the same time.
    overlapped: bool = False
    # The steps after which the processes of the first job's first node went on.
    resumed: list[int] = field(default_factory=list)

    def run(self) -> list[Check]:
        """Runs all parts. Raises LocalClusterError if an expected state is not reached."""
        screen = self.stage.screen
        self.stage.install_runtimes()
        self.stage.apply(PRIORITY_CLASS)
        self.stage.apply(ADMITTED_POD)
        screen.title(f"1. {FIRST}: two nodes with {GPUS_PER_NODE} GPUs each, which is the whole cluster")
        screen.output(self.stage.apply(*first_job()))
        self._until(f"{FIRST} to save a checkpoint", lambda jobs: bool(_checkpoint(jobs[FIRST])))
        screen.title(f"2. {URGENT}: gang.priority 1000, of the PriorityClass {URGENT}. It needs all GPUs as well")
        screen.output(self.stage.apply(urgent_job()))
        self._until(f"{FIRST} to be preempted", lambda jobs: has_condition(jobs[FIRST], "Preempted"))
        self._show("kubectl get trainjobs,gangs")
        self._until(f"{URGENT} to run", lambda jobs: has_condition(jobs[URGENT], "Running"))
        self._show(f"kubectl describe trainjob {FIRST}", "Preempted")
        self._until(f"{URGENT} to end", lambda jobs: _phase(jobs[URGENT]) in FINISHED_PHASES)
        jobs = self._look()
        saved, urgent = _checkpoint(jobs[FIRST]), _phase(jobs[URGENT])
        screen.title(f"3. {FIRST} continues from {saved}")
        # Its pods may be gone soon after its end.
        self._until(f"{FIRST} to go on from a checkpoint", lambda jobs: self._has_gone_on())
        self._until(f"{FIRST} to end", lambda jobs: _phase(jobs[FIRST]) in FINISHED_PHASES)
        self._show(f"kubectl events --for trainjob/{FIRST}")
        return [self._check_urgent(urgent), self._check_resumed(saved), self._check_end()]

    def _has_gone_on(self) -> bool:
        self.resumed = checkpoints.steps_continued_after(self.stage)
        return bool(self.resumed)

    def _check_urgent(self, phase: str) -> Check:
        text = f"the urgent job ended {phase}, and no pod of one job ran beside one of the other"
        return Check(phase == "Done" and not self.overlapped, text)

    def _check_resumed(self, saved: str) -> Check:
        """Checks that each process went on after the step of the checkpoint that was saved last."""
        text = f"{FIRST} went on after step {self.resumed[-1]}; its last checkpoint was {saved}"
        return Check(set(self.resumed) == {checkpoints.step_of(saved)}, text)

    def _check_end(self) -> Check:
        status = self._look()[FIRST].get("status", {})
        restarts = status.get("restarts", 0)
        text = f"{FIRST} ended {status.get('phase')} with {restarts} restarts"
        return Check(status.get("phase") == "Done" and restarts == 0, text)

    def _until(self, what: str, predicate: Callable[[dict[str, Object]], bool]) -> None:
        wait(lambda: predicate(self._look()), TIMEOUT_SECONDS, f"{what}; logs: {self.stage.logs}")

    def _look(self) -> dict[str, Object]:
        """Reads the jobs, and prints a line for each that has changed."""
        jobs = {str(job["metadata"]["name"]): job for job in self.stage.api.list(JOBS)}
        self.timeline.update({name: text for name, job in sorted(jobs.items()) if (text := _description(job))})
        pods = [pod for pod in self.stage.api.list(PODS) if pod["status"].get("phase") == "Running"]
        self.overlapped |= {FIRST, URGENT} <= {pod["metadata"]["labels"].get("train_job_name") for pod in pods}
        return jobs

    def _show(self, command: str, only: str = "") -> None:
        self.stage.screen.blank()
        self.stage.show(command, only=only)


def _description(job: Object) -> str:
    status, checkpoint = job.get("status", {}), _checkpoint(job)
    parts = (status.get("summary", ""), f"checkpoint {checkpoint}" if checkpoint else "", status.get("reason"))
    return ", ".join(part for part in parts if part)


def _phase(job: Object) -> str:
    return str(job.get("status", {}).get("phase", ""))


def _checkpoint(job: Object) -> str:
    return str((job.get("status", {}).get("checkpoint") or {}).get("name", ""))


def run(stage: Stage) -> list[Check]:
    with checkpoints.bucket(stage):
        return Play(stage, Timeline(stage.screen)).run()


SCENE = Scene(
    target="demo-preemption",
    description=__doc__ or "",
    cluster=replace(
        CLUSTER,
        name="demo-preemption",
        images=(images.TORCH, images.INITIALIZER),
        controller=(),
        extender=("--preemption=on", "--preempt-after=3s", "--preemption-grace=5s"),
    ),
    run=run,
    advice="""\
  tfjob-controller extender --preemption=on     # off by default
  spec: {gang: {enabled: true, priority: 1000}}, and a priorityClassName with at least that value
  spec: {checkpoint: {storageUri: s3://…}}      # what is preempted loses what it has not saved
docs/gang-scheduling.md#preemption describes who leaves for whom.""",
)
