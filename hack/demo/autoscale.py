"""A training job releases workers for another one, and gets them back when that has ended.

Real TensorFlow on two real nodes. The first job has as many workers as fit. There is no capacity for a second
one, so the first shrinks, both run, and the first grows again after the second has ended. No remaining worker is
restarted. It passes only if all of this was observed.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from demo.follow import FINISHED_PHASES, replica_of
from demo.gang import holds_gpu, is_running
from demo.play import Scene
from demo.screen import Check, Timeline
from demo.stage import NODES, ROOT, Cluster, Object, Stage, wait
from localcluster import images
from localcluster.errors import LocalClusterError

SAMPLE = Path("manifests/samples/train-elastic.yaml")
GPU = "example.com/gpu"
GPUS_PER_NODE = 2
FIRST, SECOND = "first", "second"
# Each worker needs a GPU; parameter servers need none.
LEAST, MOST = 2, NODES * GPUS_PER_NODE
# As many as fit when the first job has its minimum.
SECOND_WORKERS = MOST - LEAST
# More than it completes during the demo: the second job shows how a job ends.
FIRST_STEPS = 20_000
SECOND_STEPS = 200
STEP_SECONDS = "0.1"
_ALL_STEPS = re.compile(rf"(\d+) of {FIRST_STEPS} by all")
_SHOWN_EVENTS = ("Resized", "AutoscalerOverridden")
POLL_SECONDS = 0.3
# For each step. On an idle machine all of them together take less than two minutes.
TIMEOUT_SECONDS = 120.0
# The defaults of 30 s and 60 s are too long for a demo.
SCALE_DOWN_AFTER, SCALE_UP_AFTER = "5s", "4s"
PODS = "/api/v1/namespaces/default/pods"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
JOBS = "/apis/kubeflow.org/v1alpha1/namespaces/default/tfjobs"
WORKER_0 = f"tf_job_name={FIRST},job_type=WORKER,task_index=0"
CHIEF_OF_SECOND = f"tf_job_name={SECOND},job_type=WORKER,task_index=0"
CLUSTER = Cluster(
    name="demo-autoscale",
    title=f"a control plane and {NODES} real nodes with {GPUS_PER_NODE} simulated GPUs each",
    images=(images.TENSORFLOW,),
    controller=("--autoscaling=on",),
    extender=(f"--scale-down-after={SCALE_DOWN_AFTER}", f"--scale-up-after={SCALE_UP_AFTER}"),
    gpu=GPU,
    gpus_per_node=GPUS_PER_NODE,
)


def manifests(sample: str) -> dict[str, list[Object]]:
    """Returns ConfigMap and TFJob of each job, from the text of manifests/samples/train-elastic.yaml."""
    config_map, job = yaml.safe_load_all(sample)
    return {
        FIRST: [config_map, _job(job, FIRST, (LEAST, MOST, MOST), FIRST_STEPS)],
        SECOND: [_job(job, SECOND, (SECOND_WORKERS,) * 3, SECOND_STEPS)],
    }


def _job(sample: Object, name: str, workers: tuple[int, int, int], steps: int) -> Object:
    """Returns a TFJob; `workers` are the minimum, the number at the start, and the maximum."""
    job = copy.deepcopy(sample)
    least, at_first, most = workers
    job["metadata"]["name"] = name
    spec = job["spec"]
    spec["gang"] = {"enabled": True}
    spec["autoscaling"] |= {"minWorkers": least, "maxWorkers": most, "totalSteps": steps}
    for replica_spec in spec["replicaSpecs"]:
        if replica_spec["tfReplicaType"] == "WORKER":
            replica_spec["replicas"] = at_first
            container = replica_spec["template"]["spec"]["containers"][0]
            container["resources"] = {"requests": {"cpu": "10m", "memory": "400Mi"}, "limits": {GPU: "1"}}
            container["env"] = [{"name": "STEP_SECONDS", "value": STEP_SECONDS}]
    return job


def logged_steps(log: str) -> int:
    """Returns the steps of all workers according to the last such line; 0 without one."""
    steps = _ALL_STEPS.findall(log)
    return int(steps[-1]) if steps else 0


def bound_pods(pods: Iterable[Object]) -> list[Object]:
    """Returns the pods of jobs that have a node and have not ended, sorted by node, job and replica."""
    bound = (pod for pod in pods if _job_of(pod) and holds_gpu(pod))
    return sorted(bound, key=lambda pod: (pod["spec"]["nodeName"], _job_of(pod), replica_of(pod)))


def running(bound: Sequence[Object], job: str, role: str = "") -> int:
    """Returns how many replicas of a job run and are not being deleted."""
    members = [pod for pod in bound if _job_of(pod) == job and replica_of(pod).startswith(role)]
    return sum(is_running(pod) and not _is_leaving(pod) for pod in members)


def line(bound: Sequence[Object], nodes: Sequence[str]) -> str:
    """Returns a line such as `node-1 [first: ps-0 worker-0]   node-2 [first: worker-2 | 2 free]`."""
    here = {node: [pod for pod in bound if pod["spec"]["nodeName"] == node] for node in nodes}
    return "   ".join(f"{node} [{_on_node(pods)}]" for node, pods in here.items())


def _on_node(pods: Sequence[Object]) -> str:
    texts: dict[str, list[str]] = {}
    for pod in pods:
        suffix = " (leaves)" if _is_leaving(pod) else "" if is_running(pod) else " (starts)"
        texts.setdefault(_job_of(pod), []).append(f"{replica_of(pod)}{suffix}")
    # Parameter servers need no GPU.
    free = GPUS_PER_NODE - sum(replica_of(pod).startswith("worker") for pod in pods)
    parts = [f"{job}: {' '.join(replicas)}" for job, replicas in texts.items()]
    return " | ".join([*parts, *([f"{free} free"] if free > 0 else [])])


def _job_of(pod: Object) -> str:
    return str(pod["metadata"].get("labels", {}).get("tf_job_name", ""))


def _is_leaving(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def resizes(events: Iterable[Object], known: set[str]) -> list[str]:
    """Returns the events about resizes that are not known yet, oldest first; then they are."""
    new = [event for event in events if event["reason"] in _SHOWN_EVENTS and event["metadata"]["uid"] not in known]
    known.update(event["metadata"]["uid"] for event in new)
    new.sort(key=lambda event: str(event.get("eventTime")))
    return [f"{event['reason']} {event['regarding']['name']}: {event['note']}" for event in new]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of the cluster at one time."""

    bound: list[Object]
    jobs: dict[str, Object]

    def status(self, job: str) -> Object:
        status: Object = self.jobs.get(job, {}).get("status", {})
        return status

    def steps(self, job: str) -> int:
        """Returns the steps of all workers together, as the controller has read them from the logs."""
        done: int = (self.status(job).get("progress") or {}).get("done", 0)
        return done

    def has(self, job: str, workers: int) -> bool:
        """Reports whether that many workers and the parameter server run, without other pods of the job."""
        present = sum(_job_of(pod) == job for pod in self.bound)
        is_whole = running(self.bound, job) == present == workers + 1
        return is_whole and running(self.bound, job, "worker") == workers

    def requested_workers(self, job: str) -> int | None:
        """Returns the number in the `scale` subresource of the job."""
        workers: int | None = self.jobs.get(job, {}).get("spec", {}).get("workerReplicas")
        return workers


@dataclass(slots=True)
class Play:
    """The parts of the demo, in order."""

    stage: Stage
    timeline: Timeline
    events: set[str] = field(default_factory=set)

    def run(self) -> Iterator[Check]:
        """Runs all parts. Raises LocalClusterError if an expected state is not reached."""
        jobs = manifests((ROOT / SAMPLE).read_text())
        self._fill(jobs[FIRST])
        before, steps_before = self._first_pods(), self._steps_of_first()
        self._release_capacity(jobs[SECOND])
        self._both_run()
        self._grow_again()
        yield Check(True, f"the first job released {MOST - LEAST} workers for the second and got them back")
        yield from self._untouched(before, steps_before)
        yield self._counted()

    def _fill(self, manifest: list[Object]) -> None:
        what = f"a parameter server and {MOST} workers, at least {LEAST}"
        self.stage.screen.title(f"1. {FIRST}: {what}. It fills the cluster")
        self._create(manifest)
        self._until(f"{FIRST} to run with {MOST} workers", FIRST, lambda now: now.has(FIRST, MOST))
        self._until(f"{FIRST} to train", FIRST, lambda now: now.steps(FIRST) > 0)
        self.stage.screen.output(f"It trains for {FIRST_STEPS} steps, which the parameter server counts.")

    def _release_capacity(self, manifest: list[Object]) -> None:
        what = f"{SECOND}: a parameter server and {SECOND_WORKERS} workers. There is no capacity"
        self.stage.screen.title(f"2. {what}; after {SCALE_DOWN_AFTER} the gang scheduler requests some of {FIRST}")
        self._create(manifest)
        self._until(
            f"{SECOND} to wait for capacity", SECOND, lambda now: "needs" in now.status(SECOND).get("reason", "")
        )
        self._show("kubectl get gangs")
        shrunk = f"{FIRST} to be shrunk to {LEAST} workers"
        self._until(shrunk, SECOND, lambda now: now.requested_workers(FIRST) == LEAST)
        self.stage.screen.output(
            f"The number is written to spec.workerReplicas of {FIRST}, as by kubectl scale. Workers on other nodes "
            f"than its parameter server are removed first; their capacity is reserved for {SECOND}."
        )

    def _both_run(self) -> None:
        self._until(
            f"both to run, {FIRST} with {LEAST} workers and {SECOND} with {SECOND_WORKERS}",
            SECOND,
            lambda now: now.has(FIRST, LEAST) and now.has(SECOND, SECOND_WORKERS),
        )
        self.stage.screen.title(f"3. Both run until {SECOND} has completed its {SECOND_STEPS} steps")
        self._show("kubectl get tfjobs")
        self._show("kubectl get gangs")
        self._until(f"{SECOND} to end", SECOND, lambda now: now.status(SECOND).get("phase") in FINISHED_PHASES)

    def _grow_again(self) -> None:
        self.stage.screen.title(
            f"4. The cluster has capacity and no job waits: {FIRST} gets a worker back every {SCALE_UP_AFTER}"
        )
        self._until(f"{FIRST} to run with {MOST} workers again", FIRST, lambda now: now.has(FIRST, MOST))
        self._show(f"kubectl events --for tfjob/{FIRST}", only="Resized")

    def _untouched(self, before: dict[str, int], steps_before: int) -> Iterator[Check]:
        after = self._first_pods()
        stayed = [name for name, restarts in before.items() if after.get(name) == restarts]
        yield Check(len(stayed) == LEAST + 1, f"{LEAST + 1} of its pods ran all the time without a restart")
        steps = self._steps_of_first()
        text = f"it continued training: {steps_before} steps before, {steps} of {FIRST_STEPS} now"
        yield Check(steps > steps_before, text)

    def _counted(self) -> Check:
        log = self.stage.kubectl.run("logs", "-l", CHIEF_OF_SECOND, "--tail=-1")
        count = next((text for text in log.splitlines() if text.startswith("steps counted")), "no steps counted")
        holds = count.startswith(f"steps counted: {SECOND_STEPS} of {SECOND_STEPS}")
        return Check(holds, f"{SECOND}, counted by TensorFlow: {count}")

    def _create(self, manifest: list[Object]) -> None:
        names = ", ".join(f"{obj['kind']} {obj['metadata']['name']}" for obj in manifest)
        with self.stage.screen.command(f"kubectl create -f {names}"):
            self.stage.screen.output(self.stage.apply(*manifest, command="create"))

    def _until(self, what: str, name: str, predicate: Callable[[Snapshot], bool]) -> None:
        """Shows changes until the predicate holds. Raises LocalClusterError if the job of that name fails before."""

        def is_reached() -> bool:
            now = self._look()
            status, holds = now.status(name), predicate(now)
            if not holds and status.get("phase") == "Failed":
                raise LocalClusterError(f"waiting for {what}: {name} failed: {status.get('reason')}")
            return holds

        wait(is_reached, TIMEOUT_SECONDS, f"{what}; kubectl events, and logs: {self.stage.logs}", POLL_SECONDS)

    def _look(self) -> Snapshot:
        """Reads the state, and prints a line for each change and each resize."""
        api = self.stage.api
        jobs = {job["metadata"]["name"]: job for job in api.list(JOBS)}
        now = Snapshot(bound_pods(api.list(PODS)), jobs)
        for text in resizes(api.list(EVENTS), self.events):
            self.timeline.line(text)
        nodes = [node["metadata"]["name"] for node in api.list("/api/v1/nodes")]
        self.timeline.update({"": line(now.bound, nodes)})
        return now

    def _first_pods(self) -> dict[str, int]:
        """Returns the restarts of each pod of the first job, by name."""
        return {
            pod["metadata"]["name"]: sum(
                status["restartCount"] for status in pod["status"].get("containerStatuses", ())
            )
            for pod in self.stage.api.list(PODS, f"tf_job_name={FIRST}")
        }

    def _steps_of_first(self) -> int:
        """Returns the steps of the first job that its worker 0 has logged."""
        return logged_steps(self.stage.kubectl.run("logs", "-l", WORKER_0, "--tail=20"))

    def _show(self, command: str, only: str = "") -> None:
        self.stage.screen.blank()
        self.stage.show(command, only=only)


SCENE = Scene(
    target="demo-autoscale",
    description=__doc__ or "",
    cluster=CLUSTER,
    run=lambda stage: list(Play(stage, Timeline(stage.screen)).run()),
    advice=f"""\
  kubectl apply -f {SAMPLE}      # resize it by hand: kubectl scale tfjob/train-elastic --replicas=4
  spec: {{gang: {{enabled: true}}, autoscaling: {{minWorkers: 1, maxWorkers: 4}}}}
  tfjob-controller run --autoscaling=recommend      # reports without resizing
docs/autoscaling.md describes what the program must do, when not to use it, and how to tune the delays.""",
)
