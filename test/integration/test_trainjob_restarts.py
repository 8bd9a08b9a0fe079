"""After a retryable failure of one node all nodes are restarted, and no new node runs beside an old one."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from helpers.cluster import pod_path, set_pod_running
from helpers.playground import NOBODYS_NODE, Trial, condition
from helpers.podwatch import watching_pods
from helpers.poll import eventually, never
from helpers.trainjobs import (
    await_cached,
    await_ready,
    await_restart,
    cluster_runtime,
    generations,
    nodes,
)
from localcluster import podstatus

pytestmark = pytest.mark.cluster

Object = dict[str, Any]
TORCHRUN: dict[str, Any] = {"command": ("torchrun", "train.py")}


def evict(trial: Trial) -> None:
    name = trial.await_running("node-1")["metadata"]["name"]
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    trial.jobs.api.create(f"{pod_path(trial.namespace, name)}/eviction", body)


def delete_job(trial: Trial) -> None:
    trial.jobs.api.delete(trial.child_path("jobs", trial.child("node-1")), propagationPolicy="Background")


# What each is called in the event.
FAILURES: dict[Callable[[Trial], None], str] = {
    evict: "node-1 failed: .+",
    # All nodes have lost it. The garbage collector deletes their pods at the same time, and watches are independent.
    delete_job: "node-[01] failed: (its Job was deleted|its pod was deleted, evicted or lost)",
}


@pytest.mark.parametrize("failure", FAILURES)
def test_one_nodes_passing_failure_restarts_all_nodes(train: Trial, failure: Callable[[Trial], None]) -> None:
    train.train(2, **TORCHRUN)
    await_ready(train)
    old = {name: job["metadata"]["uid"] for name, job in train.children("jobs").items()}
    services = {name: each["metadata"]["uid"] for name, each in train.children("services").items()}
    with watching_pods(train.jobs.api, train.namespace) as watched:
        failure(train)
        status = await_restart(train)
    assert watched.mixed(train.runtime_id) == []
    new = {name: job["metadata"]["uid"] for name, job in train.children("jobs").items()}
    assert new.keys() == old.keys()
    assert not set(new.values()) & set(old.values())
    assert {name: each["metadata"]["uid"] for name, each in train.children("services").items()} == services
    assert status["restarts"] == 1
    status = train.await_status(lambda status: condition(status, "Restarting")["status"] == "False")
    assert condition(status, "Running")["status"] == "True"
    (note,) = eventually(lambda: train.notes("Restarted"))
    assert re.fullmatch(rf"Restarting all replicas: {FAILURES[failure]} \(restart 1\)", note), note
    for node in nodes(2):
        train.end(node)
    end = train.await_end()
    assert (end["state"], end["restarts"], train.notes("Restarted")) == ("SUCCESS", 1, [note])


def test_no_new_node_is_made_while_an_old_one_may_still_run(train: Trial) -> None:
    """Also when the name of their Job is free already."""
    with cluster_runtime(train.jobs.api, templates={"node": on_nobodys_node()}) as name:
        await_cached(train, name)
        train.train(2, runtimeRef={"name": name})
        for node in nodes(2):
            set_pod_running(train.jobs.api, train.namespace, train.await_pod(node)["metadata"]["name"])
        await_ready(train)
        (last,) = train.pods("node-0")
        job = train.child("node-1")
        train.end("node-1", 137)
        # The controller deletes it after its pods.
        eventually(lambda: "deletionTimestamp" in train.child_job("node-1")["metadata"])
        never(lambda: "1" in generations(train).values(), 1, 0.1)
        train.jobs.api.delete(train.child_path("jobs", job), propagationPolicy="Background")
        eventually(lambda: job not in train.children("jobs"))
        never(lambda: generations(train), 1, 0.1)
        assert [pod["metadata"]["uid"] for pod in train.pods("node-0")] == [last["metadata"]["uid"]]
        removed = podstatus.now()
        train.remove_pod(last)
        eventually(lambda: list(generations(train).values()) == ["1"])
        assert train.child_job("node-1")["metadata"]["creationTimestamp"] >= removed
        assert train.status()["restarts"] == 1


def on_nobodys_node() -> Object:
    spec: Object = {"terminationGracePeriodSeconds": 1, "containers": [{"name": "node"}]}
    return {"spec": {**spec, "nodeName": NOBODYS_NODE}}
