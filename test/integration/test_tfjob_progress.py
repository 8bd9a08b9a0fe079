"""Steps of training on a real API server: the shares of workers, and their progress.

A kubelet of the test serves the logs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from helpers.cluster import Cluster, delete_namespace, new_namespace, pod_path, set_pod_running
from helpers.controller import Jobs
from helpers.controllerprocess import controller_process
from helpers.kubectl import Kubectl
from helpers.logkubelet import Kubelet
from helpers.manifests import container, master, pod_template, workers
from helpers.playground import Playground, Script, Trial, alone
from helpers.poll import eventually
from localcluster.api import Api
from localcluster.fakekubelet import FakeKubelet

pytestmark = pytest.mark.cluster

Object = dict[str, Any]

RESTART = {"minWorkers": 1, "maxWorkers": 6, "resize": "Restart", "totalSteps": 100}
IN_PLACE = {**RESTART, "resize": "InPlace"}


def await_done(trial: Trial, done: int) -> None:
    trial.await_status(lambda status: status.get("progress", {}).get("done") == done)


def report(trial: Trial, replica: str, steps: str) -> None:
    """What the program does: it annotates its own pod."""
    name = trial.await_running(replica)["metadata"]["name"]
    annotations = {"kubeflow.org/steps": steps}
    trial.jobs.api.patch(pod_path(trial.namespace, name), {"metadata": {"annotations": annotations}})


def env(trial: Trial, replica: str) -> dict[str, str]:
    (each,) = trial.child_job(replica)["spec"]["template"]["spec"]["containers"]
    return {variable["name"]: variable["value"] for variable in each["env"]}


def shares(trial: Trial, count: int) -> list[int]:
    return [int(env(trial, f"worker-{index}")["TFJOB_STEPS"]) for index in range(count)]


def test_a_worker_that_comes_in_place_gets_a_share_of_what_is_left_and_the_others_keep_theirs(trial: Trial) -> None:
    trial.submit(master(), workers(2), autoscaling=IN_PLACE)
    trial.await_phase("Running")
    report(trial, "worker-0", "40")
    await_done(trial, 40)
    trial.change(workerReplicas=3)
    trial.await_pod("worker-2")
    assert shares(trial, 3) == [50, 50, 20]
    trial.change(workerReplicas=1)
    trial.await_children("jobs", 2)
    report(trial, "worker-0", "200")
    await_done(trial, 200)
    trial.change(workerReplicas=2)
    trial.await_pod("worker-1")
    assert shares(trial, 2) == [50, 0]


def test_nothing_is_lost_or_counted_twice_when_the_controller_is_killed(
    control_plane: Cluster, administrator: Kubectl, tmp_path: Path
) -> None:
    namespace, script, log = new_namespace(control_plane.api, "steps"), Script(), tmp_path / "log"
    kubelet = FakeKubelet(Api.from_kubeconfig(control_plane.own.kubeconfig), namespace=namespace, behaviour=script)
    playground = Playground(None, Jobs(control_plane.api, namespace), script)  # type: ignore[arg-type]  # a process
    trial = playground.new_trial()
    with kubelet, controller_process(control_plane.kubeconfig, namespace, log) as first:
        trial.submit(master(), workers(2), autoscaling=IN_PLACE)
        report(trial, "worker-0", "10")
        report(trial, "worker-1", "20")
        await_done(trial, 30)
        trial.change(workerReplicas=1)
        eventually(lambda: len(trial.children("pods")) == 2)
        first.kill()
        report(trial, "worker-0", "12")
        with controller_process(control_plane.kubeconfig, namespace, log):
            await_done(trial, 32)
    delete_namespace(control_plane.api, namespace)


# From logs


def on(node: Kubelet) -> Object:
    return pod_template(container(), nodeName=node.name)


def start(trial: Trial, replica: str) -> str:
    pod = str(trial.await_pod(replica)["metadata"]["name"])
    set_pod_running(trial.jobs.api, trial.namespace, pod)
    return pod


def test_the_log_says_how_far_a_worker_is_and_its_end_is_read_before_the_job_is_over(
    trial: Trial, logging_node: Kubelet
) -> None:
    autoscaling = {**IN_PLACE, "progress": {"pattern": "^step ([^ ]+)"}}
    trial.submit(master(template=alone()), workers(1, template=on(logging_node)), autoscaling=autoscaling)
    start(trial, "master-0")
    pod = start(trial, "worker-0")
    logging_node.logs[pod] = "hello\nstep 41 done\nstep 42 done\nloss 0.3\n"
    # Until now it has printed what all print: step 2.
    trial.await_status(lambda status: status.get("progress", {}).get("done") in (2, 42))
    await_done(trial, 42)
    (*_, last) = logging_node.requests
    assert (last.query["tailLines"], "limitBytes" in last.query) == ("100", True)
    logging_node.logs[pod] = "step 100 done\n"
    trial.end("worker-0")
    trial.end("master-0")
    assert trial.await_end()["progress"]["done"] == 100
    asked = len(logging_node.requests)
    trial.await_phase("Done")
    assert len(logging_node.requests) == asked


def test_the_last_line_of_a_terminating_worker_counts(trial: Trial) -> None:
    """Its kubelet has no log of it any more; the message of its end, which the kubelet takes from the log, is there."""
    autoscaling = {**RESTART, "progress": {"pattern": "^step ([0-9]+)"}}
    trial.submit(master(), workers(2, template=alone()), autoscaling=autoscaling)
    start(trial, "worker-0")
    start(trial, "worker-1")
    (each,) = trial.child_job("worker-1")["spec"]["template"]["spec"]["containers"]
    assert each["terminationMessagePolicy"] == "FallbackToLogsOnError"
    trial.end("worker-1", 143, "step 9\nstep 10\nterminated\n")
    await_done(trial, 10)
