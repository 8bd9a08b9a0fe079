"""Two training jobs that each need all GPUs of a small cluster, twice.

The default scheduler binds pods one by one: each job gets some GPUs and waits for the rest forever. With the gang
scheduler one job completes after the other, and no job holds GPUs while it waits. It passes only if all of this was
observed.

It does not need root, since no container runs: a fake kubelet reports pods as running. kube-apiserver, both
kube-schedulers, the Job controller, the TFJob controller and the gang scheduler are real.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from demo.play import Scene
from demo.screen import Check, Timeline
from demo.stage import NODES, Cluster, Object, Stage
from localcluster import podstatus
from localcluster.api import STRATEGIC_MERGE_PATCH
from localcluster.errors import LocalClusterError
from localcluster.podstatus import Outcome

GPU = "nvidia.com/gpu"
GPUS_PER_NODE = 4
JOBS = ("blue", "red")
# A master and its workers, one GPU each: all GPUs of the cluster.
REPLICAS = 8
REQUESTS = {"cpu": "500m", GPU: "1"}
POLL_SECONDS = 0.1
# All replicas must run at the same time for this long to complete the job.
TRAINING_SECONDS = 3.0
# Without a change for this long, the demo assumes a deadlock.
WATCHED_SECONDS = 6.0
TIMEOUT_SECONDS = 60.0
TRIES = 3
# Two Bindings of one gang are some milliseconds apart; on a busy machine several polls may happen in between.
AT_THE_SAME_TIME_SECONDS = 1.0
PODS = "/api/v1/namespaces/default/pods"
TFJOBS = "/apis/kubeflow.org/v1alpha1/namespaces/default/tfjobs"
PODS_BY_NODE = (
    "kubectl get pods",
    "--sort-by=.spec.nodeName",
    "-o=custom-columns=POD:.metadata.name,PHASE:.status.phase,NODE:.spec.nodeName,SCHEDULER:.spec.schedulerName",
)


def manifest(name: str, *, is_gang: bool) -> Object:
    """Returns a TFJob of REPLICAS pods. Its image is never pulled, since nodes are simulated."""
    template = {
        "spec": {
            "containers": [
                {
                    "name": "tensorflow",
                    "image": "localhost/tensorflow",
                    "resources": {"requests": REQUESTS, "limits": {GPU: "1"}},
                }
            ]
        }
    }
    replicas = [
        {"tfReplicaType": "MASTER", "replicas": 1, "template": template},
        {"tfReplicaType": "WORKER", "replicas": REPLICAS - 1, "template": template},
    ]
    spec = {**({"gang": {"enabled": True}} if is_gang else {}), "replicaSpecs": replicas}
    return {"apiVersion": "kubeflow.org/v1alpha1", "kind": "TFJob", "metadata": {"name": name}, "spec": spec}


def by_job(pods: Sequence[Object]) -> dict[str, list[Object]]:
    """Returns the pods of each job that hold a GPU."""
    holders: dict[str, list[Object]] = {name: [] for name in JOBS}
    for pod in pods:
        name = pod["metadata"].get("labels", {}).get("tf_job_name", "")
        if name in holders and holds_gpu(pod):
            holders[name].append(pod)
    return holders


def holds_gpu(pod: Object) -> bool:
    has_ended = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
    return bool(pod["spec"].get("nodeName")) and not has_ended


def is_running(pod: Object) -> bool:
    return bool(pod.get("status", {}).get("phase") == "Running")


def bar(held: Mapping[str, int]) -> str:
    """Returns a line such as `blue ####....  4 of 8 GPUs      red ####....  4 of 8 GPUs`."""
    parts = [
        f"{name:>4} {'█' * count}{'·' * (REPLICAS - count)} {count} of {REPLICAS} GPUs" for name, count in held.items()
    ]
    return "    ".join(parts)


@dataclass(slots=True)
class Ledger:
    """The observations so far. Times are those passed to `look`, in seconds."""

    held: dict[str, int] = field(default_factory=dict)
    complete_at: dict[str, float] = field(default_factory=dict)
    """When all replicas of a job were running for the first time."""
    in_vain_seconds: float = 0.0
    """The longest time that a job held some of its GPUs before it had all of them."""
    _since: dict[str, float] = field(default_factory=dict)

    def look(self, pods: Sequence[Object], now: float) -> None:
        """Records the pods."""
        holders = by_job(pods)
        self.held = {name: len(members) for name, members in holders.items()}
        for name, members in holders.items():
            if len(members) == REPLICAS and all(is_running(pod) for pod in members):
                self.complete_at.setdefault(name, now)
            self._judge(name, len(members), now)

    def _judge(self, name: str, count: int, now: float) -> None:
        if name in self.complete_at or count in (0, REPLICAS):
            self._since.pop(name, None)
            return
        self.in_vain_seconds = max(self.in_vain_seconds, now - self._since.setdefault(name, now))

    def is_deadlocked(self) -> bool:
        """Reports whether every job holds GPUs, none holds all that it needs, and none are free."""
        counts = self.held.values()
        return not self.complete_at and sum(counts) == REPLICAS and all(counts)


def run(stage: Stage) -> list[Check]:
    return [without_gangs(stage), *with_gangs(stage)]


def without_gangs(stage: Stage) -> Check:
    """Shows the deadlock, with a retry if one job happens to get all GPUs."""
    screen = stage.screen
    screen.title(f"1. The default scheduler. Two jobs are created at the same time; each needs all {REPLICAS} GPUs")
    for _ in range(TRIES):
        ledger = contend(stage)
        if ledger.is_deadlocked():
            screen.output("Each job holds GPUs and waits for those of the other one. They wait forever.")
            screen.blank()
            break
        screen.output("This time one job got all of them. Trying again.")
        clear(stage)
    stage.show(*PODS_BY_NODE)
    stage.show("kubectl get tfjobs -o wide")
    clear(stage)
    held = " and ".join(f"{ledger.held[name]} ({name})" for name in JOBS)
    return Check(ledger.is_deadlocked(), f"without gangs: neither job ran, holding {held} of {REPLICAS} GPUs")


def contend(stage: Stage) -> Ledger:
    """Creates both jobs without gangs and waits until one has all GPUs, or until nothing changes any more."""
    submit(stage, is_gang=False)
    ledger, quiet_since = Ledger(), time.monotonic()

    def is_over() -> bool:
        return bool(ledger.complete_at) or time.monotonic() - quiet_since > WATCHED_SECONDS

    for is_changed in watch(stage, ledger, is_over):
        if is_changed or not ledger.is_deadlocked():
            quiet_since = time.monotonic()
    stage.screen.output(f"{WATCHED_SECONDS:.0f} s later nothing has changed." if ledger.is_deadlocked() else "")
    stage.screen.blank()
    return ledger


def clear(stage: Stage) -> None:
    """Deletes both jobs, and their children, since the garbage collector discovers new kinds only every 30 s."""
    stage.screen.step("kubectl delete tfjobs --all")
    stage.kubectl.run("delete", "tfjobs", "--all", "--cascade=background")
    stage.kubectl.run("delete", "jobs,services,pods", "-l", "kubeflow.org")


def with_gangs(stage: Stage) -> Iterator[Check]:
    """Shows that the jobs run one after the other with gangs."""
    stage.screen.title("2. The gang scheduler. The same two jobs, with spec.gang.enabled: true")
    submit(stage, is_gang=True)
    ledger, trained, is_shown = Ledger(), set[str](), False
    for _ in watch(stage, ledger, lambda: are_done(stage)):
        train(stage, ledger, trained)
        if ledger.complete_at and not is_shown:
            is_shown = True
            stage.screen.blank()
            stage.show("kubectl get gangs")
            stage.show("kubectl get tfjobs -o wide")
            stage.show(*PODS_BY_NODE)
    stage.screen.blank()
    stage.show("kubectl get tfjobs")
    yield Check(are_done(stage), "with gangs: both jobs completed, one after the other")
    yield Check(
        ledger.in_vain_seconds < AT_THE_SAME_TIME_SECONDS,
        f"with gangs: no job held a GPU while it waited for others (longest: {ledger.in_vain_seconds:.1f} s)",
    )


def train(stage: Stage, ledger: Ledger, trained: set[str]) -> None:
    """Simulates the training: when all replicas have run for a while, the master succeeds."""
    for name, since in ledger.complete_at.items():
        if name in trained or time.monotonic() - since <= TRAINING_SECONDS:
            continue
        trained.add(name)
        for pod in by_job(stage.api.list(PODS, f"tf_job_name={name},job_type=MASTER"))[name]:
            status = {"status": podstatus.terminated(pod, Outcome())}
            stage.api.patch(f"{PODS}/{pod['metadata']['name']}/status", status, STRATEGIC_MERGE_PATCH)


def submit(stage: Stage, *, is_gang: bool) -> None:
    """Creates both jobs with one command, like two users at the same time."""
    stage.screen.step("kubectl create -f jobs.yaml   (" + ", ".join(f"TFJob {name}" for name in JOBS) + ")")
    jobs = [manifest(name, is_gang=is_gang) for name in JOBS]
    stage.screen.output(stage.apply(*jobs, command="create"))
    stage.screen.blank()


def watch(stage: Stage, ledger: Ledger, is_over: Callable[[], bool]) -> Iterator[bool]:
    """Polls the pods and prints a line for each change; yields whether there was one."""
    timeline = Timeline(stage.screen)
    while not is_over():
        if timeline.seconds > TIMEOUT_SECONDS:
            raise LocalClusterError(f"it took more than {TIMEOUT_SECONDS:.0f} s: see the logs in {stage.logs}")
        ledger.look(stage.api.list(PODS), time.monotonic())
        yield timeline.update({"": bar(ledger.held)})
        time.sleep(POLL_SECONDS)


def are_done(stage: Stage) -> bool:
    phases = [job.get("status", {}).get("phase") for job in stage.api.list(TFJOBS)]
    if "Failed" in phases:
        raise LocalClusterError(f"a job failed unexpectedly: see the logs in {stage.logs}")
    return phases == ["Done"] * len(JOBS)


SCENE = Scene(
    target="demo-gang",
    description=__doc__ or "",
    cluster=Cluster(
        name="demo-gang",
        title=f"a control plane, and {NODES} simulated nodes with {GPUS_PER_NODE} GPUs each",
        # The limit interleaves the pods of two jobs that are created at the same time: on a real cluster the default
        # limits of the Job controller have this effect.
        controller=("--concurrent-writes=1",),
        gpu=GPU,
        gpus_per_node=GPUS_PER_NODE,
        is_simulated=True,
    ),
    run=run,
    advice="""\
  kubectl apply -k manifests/overlays/gang-scheduling     # beside the scheduler of your cluster
  spec: {gang: {enabled: true}}                           # in a TFJob; or --gang-scheduling=always for all
  manifests/samples/gang_of_pods.py                       # your own pods as a gang, without a TFJob
docs/gang-scheduling.md describes each message, failures and limits.""",
)
