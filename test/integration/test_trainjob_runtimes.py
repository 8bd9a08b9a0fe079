"""The fields that a TrainJob takes from its runtime, and TrainJobs without a runtime."""

from __future__ import annotations

import secrets

import pytest

from helpers.playground import Trial, condition
from helpers.poll import never
from helpers.trainjobs import GROUP_PATH, await_cached, await_ready, cluster_runtime
from helpers.trainmanifests import runtime

pytestmark = pytest.mark.cluster


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


def test_a_runtime_that_is_changed_does_not_disturb_a_job_that_runs(train: Trial) -> None:
    api = train.jobs.api
    with cluster_runtime(api, framework="torch") as name:
        await_cached(train, name)
        train.train(2, runtimeRef={"name": name})
        await_ready(train)
        old = {each: job["metadata"]["uid"] for each, job in train.children("jobs").items()}
        api.patch(f"{GROUP_PATH}/clustertrainingruntimes/{name}", {"spec": {"framework": "jax"}})
        never(lambda: train.status()["phase"] != "Running", 1, 0.1)
        assert {each: job["metadata"]["uid"] for each, job in train.children("jobs").items()} == old


def test_a_job_that_cannot_be_built_says_which_field_is_missing(train: Trial) -> None:
    train.train(None)
    status = train.await_end()
    failed = condition(status, "Failed")
    assert (status["state"], failed["reason"]) == ("FAILED", "JobsBuildFailed")
    assert "spec.numNodes: is required" in failed["message"]
    assert train.children("jobs") == {}
