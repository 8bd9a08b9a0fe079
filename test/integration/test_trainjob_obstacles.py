"""Obstacles of a TrainJob: lost pods, a foreign object, a runtime that does not exist yet."""

from __future__ import annotations

import secrets

import pytest

from helpers.cluster import pod_path
from helpers.playground import Trial, condition
from helpers.poll import never
from helpers.trainjobs import GROUP_PATH, await_ready, await_restart
from helpers.trainmanifests import runtime

pytestmark = pytest.mark.cluster


def test_failures_of_several_nodes_at_one_time_are_one_restart(train: Trial) -> None:
    train.train(3)
    await_ready(train, 3)
    for pod in list(train.children("pods")):
        train.jobs.api.delete(pod_path(train.namespace, pod))
    status = await_restart(train, 1, 3)
    never(lambda: train.status().get("restarts") != 1, 1, 0.1)
    assert status["phase"] == "Running"


def test_a_foreign_job_under_the_name_of_a_node_is_reported_and_never_touched(train: Trial) -> None:
    api = train.jobs.api
    train.train(1, suspend=True)
    train.await_status(lambda status: condition(status, "Suspended")["status"] == "True")
    name = train.child("node-0")
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "theirs", "image": "localhost/theirs"}]}}
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}}
    api.create(
        f"/apis/batch/v1/namespaces/{train.namespace}/jobs", {**body, "spec": {"suspend": True, "template": template}}
    )
    train.change(suspend=False)
    train.await_reason(f"cannot create Job {name}", "is not this job's")
    found = api.get(train.child_path("jobs", name))
    assert found["spec"]["template"]["spec"]["containers"][0]["name"] == "theirs"
    api.delete(train.child_path("jobs", name), propagationPolicy="Background")
    status = await_ready(train, 1)
    assert status.get("restarts", 0) == 0


def test_a_job_runs_once_its_runtime_comes_a_moment_later(train: Trial) -> None:
    api, name = train.jobs.api, f"late-{secrets.token_hex(4)}"
    given = runtime(name, namespaced=True, framework="torch", numNodes=2)
    train.train(None, runtimeRef={"name": name, "kind": given["kind"]})
    # Not for long: it does not wait for ever.
    train.await_reason("there is no")
    assert train.children("jobs") == {}
    path = f"{GROUP_PATH}/namespaces/{train.namespace}/trainingruntimes"
    api.create(path, given)
    try:
        status = await_ready(train)
        assert (status["runtime"], status.get("reason", "")) == (name, "")
    finally:
        api.delete(f"{path}/{name}")
