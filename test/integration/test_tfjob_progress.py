"""The progress of training that the logs of workers report, on a real API server; a kubelet of the test serves them."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.cluster import set_pod_running
from helpers.logkubelet import Kubelet
from helpers.manifests import container, master, pod_template, workers
from helpers.playground import Trial, alone

pytestmark = pytest.mark.cluster

Object = dict[str, Any]


def await_done(trial: Trial, done: int) -> None:
    trial.await_status(lambda status: status.get("progress", {}).get("done") == done)


def on(node: Kubelet) -> Object:
    return pod_template(container(), nodeName=node.name)


def start(trial: Trial, replica: str) -> str:
    pod = str(trial.await_pod(replica)["metadata"]["name"])
    set_pod_running(trial.jobs.api, trial.namespace, pod)
    return pod


def test_the_log_says_how_far_a_worker_is_and_its_end_is_read_before_the_job_is_over(
    trial: Trial, logging_node: Kubelet
) -> None:
    autoscaling = {"minWorkers": 1, "maxWorkers": 6, "totalSteps": 100, "progress": {"pattern": "^step ([^ ]+)"}}
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
