"""`make demo-gang`: two training jobs that each need all GPUs of a small cluster, twice.

The default scheduler binds pods one by one: each job gets some GPUs and waits for the rest forever. With the gang
scheduler one job completes after the other, and no job holds GPUs while it waits.

Exit code 0 only if all of this was observed. Ctrl-C stops everything that the demo has started.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator

from demo.checks import Check
from demo.follow import DemoError
from demo.gangjobs import JOBS, REPLICAS, Ledger, bar, by_job, manifest
from demo.gangstage import open_gang_stage
from demo.ownstage import OwnStage
from demo.play import perform_alone
from demo.screen import Screen
from demo.steps import show
from localcluster import podstatus
from localcluster.api import STRATEGIC_MERGE_PATCH, RefusedError
from localcluster.podstatus import Outcome

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
PODS_BY_NODE = (
    "kubectl get pods",
    "--sort-by=.spec.nodeName",
    "-o=custom-columns=POD:.metadata.name,PHASE:.status.phase,NODE:.spec.nodeName,SCHEDULER:.spec.schedulerName",
)


def main() -> int:
    """Runs the demo and returns the exit code."""
    return perform_alone("this demo simulates nodes, so it starts its own control plane", perform)


def perform(screen: Screen) -> bool:
    """Runs the demo on its control plane. Returns whether all checks hold."""
    with open_gang_stage(screen) as stage:
        passed = screen.checks([*without_gangs(stage, screen), *with_gangs(stage, screen)])
        farewell(screen)
        return passed


def without_gangs(stage: OwnStage, screen: Screen) -> list[Check]:
    """Shows the deadlock, with a retry if one job happens to get all GPUs."""
    screen.title(f"1. The default scheduler. Two jobs are created at the same time; each needs all {REPLICAS} GPUs")
    for _ in range(TRIES):
        ledger = contend(stage, screen)
        if ledger.is_deadlocked():
            screen.output("Each job holds GPUs and waits for those of the other one. They wait forever.")
            screen.blank()
            break
        screen.output("This time one job got all of them. Trying again.")
        clear(stage, screen)
    held = " and ".join(f"{ledger.held[name]} ({name})" for name in JOBS)
    text = f"without gangs: neither job ran, holding {held} of {REPLICAS} GPUs"
    show(stage.kubectl, screen, *PODS_BY_NODE)
    show(stage.kubectl, screen, "kubectl get tfjobs -o wide")
    clear(stage, screen)
    return [Check(ledger.is_deadlocked(), text)]


def contend(stage: OwnStage, screen: Screen) -> Ledger:
    """Creates both jobs without gangs and waits until one has all GPUs, or until nothing changes any more."""
    submit(stage, screen, is_gang=False)
    ledger, quiet_since = Ledger(), time.monotonic()

    def is_over() -> bool:
        return bool(ledger.complete_at) or time.monotonic() - quiet_since > WATCHED_SECONDS

    for is_changed in watch(stage, screen, ledger, is_over):
        if is_changed or not ledger.is_deadlocked():
            quiet_since = time.monotonic()
    screen.output(f"{WATCHED_SECONDS:.0f} s later nothing has changed." if ledger.is_deadlocked() else "")
    screen.blank()
    return ledger


def clear(stage: OwnStage, screen: Screen) -> None:
    """Deletes both jobs, and their children, since the garbage collector discovers new kinds only every 30 s."""
    screen.step("kubectl delete tfjobs --all")
    stage.kubectl.run("delete", "tfjobs", "--all", "--cascade=background")
    stage.kubectl.run("delete", "jobs,services,pods", "-l", "kubeflow.org")


def with_gangs(stage: OwnStage, screen: Screen) -> list[Check]:
    """Shows that the jobs run one after the other with gangs."""
    screen.title("2. The gang scheduler. The same two jobs, with spec.gang.enabled: true")
    submit(stage, screen, is_gang=True)
    ledger, training = Ledger(), Training(stage)
    shown = False
    for _ in watch(stage, screen, ledger, lambda: are_done(stage)):
        training.update(ledger)
        if ledger.complete_at and not shown:
            shown = True
            screen.blank()
            show(stage.kubectl, screen, "kubectl get gangs")
            show(stage.kubectl, screen, "kubectl get tfjobs -o wide")
            show(stage.kubectl, screen, *PODS_BY_NODE)
    screen.blank()
    show(stage.kubectl, screen, "kubectl get tfjobs")
    return [
        Check(are_done(stage), "with gangs: both jobs completed, one after the other"),
        Check(
            ledger.in_vain_seconds < AT_THE_SAME_TIME_SECONDS,
            f"with gangs: no job held a GPU while it waited for others (longest: {ledger.in_vain_seconds:.1f} s)",
        ),
    ]


class Training:
    """Simulates the training: when all replicas have run for a while, the master succeeds."""

    def __init__(self, stage: OwnStage) -> None:
        self._api = stage.api
        self._ended: set[str] = set()

    def update(self, ledger: Ledger) -> None:
        for name, since in ledger.complete_at.items():
            if name not in self._ended and time.monotonic() - since > TRAINING_SECONDS:
                self._ended.add(name)
                self._end(name)

    def _end(self, name: str) -> None:
        pods = by_job(self._api.list(PODS, f"tf_job_name={name},job_type=MASTER"))[name]
        for pod in pods:
            status = {"status": podstatus.terminated(pod, Outcome())}
            self._api.patch(f"{PODS}/{pod['metadata']['name']}/status", status, STRATEGIC_MERGE_PATCH)


def submit(stage: OwnStage, screen: Screen, *, is_gang: bool) -> None:
    """Creates both jobs with one command, like two users at the same time."""
    screen.step("kubectl create -f jobs.yaml   (" + ", ".join(f"TFJob {name}" for name in JOBS) + ")")
    items = [manifest(name, is_gang=is_gang) for name in JOBS]
    body = {"apiVersion": "v1", "kind": "List", "items": items}
    screen.output(stage.kubectl.run("create", "-f", "-", stdin=json.dumps(body)))
    screen.blank()


def watch(stage: OwnStage, screen: Screen, ledger: Ledger, is_over: Callable[[], bool]) -> Iterator[bool]:
    """Polls the pods and prints a line for each change; yields whether there was one."""
    began = time.monotonic()
    while not is_over():
        now = time.monotonic()
        if now - began > TIMEOUT_SECONDS:
            raise DemoError(f"it took more than {TIMEOUT_SECONDS:.0f} s: see the logs")
        is_changed = ledger.look(stage.api.list(PODS), now)
        if is_changed:
            screen.output(f"{now - began:5.1f} s  {bar(ledger.held)}")
        yield is_changed
        time.sleep(POLL_SECONDS)


def are_done(stage: OwnStage) -> bool:
    path = "/apis/kubeflow.org/v1alpha1/namespaces/default/tfjobs"
    try:
        phases = [each.get("status", {}).get("phase") for each in stage.api.list(path)]
    except RefusedError as error:
        raise DemoError(str(error)) from error
    if "Failed" in phases:
        raise DemoError("a job failed unexpectedly: see the logs")
    return phases == ["Done"] * len(JOBS)


def farewell(screen: Screen) -> None:
    """Prints what to do next."""
    screen.blank()
    screen.output(
        "Next:\n"
        "  kubectl apply -k manifests/overlays/gang-scheduling     # beside the scheduler of your cluster\n"
        "  spec: {gang: {enabled: true}}                           # in a TFJob; or --gang-scheduling=always for all\n"
        "  manifests/samples/gang_of_pods.py                       # your own pods as a gang, without a TFJob\n"
        "docs/gang-scheduling.md describes each message, failures and limits."
    )


if __name__ == "__main__":
    sys.exit(main())
