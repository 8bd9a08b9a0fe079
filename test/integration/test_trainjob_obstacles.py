"""Obstacles of a TrainJob: foreign objects, deleted children.

None of them causes a restart, unless a node was lost.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from helpers.cluster import pod_path
from helpers.playground import Trial, condition
from helpers.poll import eventually, never
from helpers.trainjobs import await_ready, await_restart

pytestmark = pytest.mark.cluster


def drop_service(trial: Trial) -> None:
    (name,) = trial.children("services")
    trial.jobs.api.delete(trial.child_path("services", name))


def drop_config_map(trial: Trial) -> None:
    (name,) = trial.children("configmaps")
    trial.jobs.api.delete(trial.child_path("configmaps", name))


@pytest.mark.parametrize("drop", [drop_service, drop_config_map])
def test_a_deleted_service_or_config_map_is_recreated_and_nobody_is_restarted(
    train: Trial, drop: Callable[[Trial], None]
) -> None:
    train.train(2, command=("mpirun",))
    await_ready(train)
    plural = "services" if drop is drop_service else "configmaps"
    before = {each["metadata"]["uid"] for each in train.children(plural).values()}
    drop(train)
    eventually(lambda: is_new(train, plural, before))
    assert train.status().get("restarts", 0) == 0


def is_new(trial: Trial, plural: str, before: set[str]) -> bool:
    now = {each["metadata"]["uid"] for each in trial.children(plural).values()}
    return len(now) == len(before) and now != before


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


def test_a_restart_that_is_due_waits_while_the_job_is_suspended(train: Trial) -> None:
    """Nothing runs then that could be restarted; and the one that was ended by it is nobody's failure."""
    train.train(2)
    await_ready(train)
    train.end("node-0", 137)
    await_restart(train)
    train.end("node-0", 137)
    train.await_status(lambda status: status.get("restarts") == 2)
    train.change(suspend=True)
    train.await_status(lambda status: condition(status, "Suspended")["status"] == "True")
    # The failed pod may stay, if its Job was suspended before it could be deleted.
    eventually(lambda: not alive(train))
    train.change(suspend=False)
    status = await_ready(train)
    assert status["restarts"] == 2


def alive(trial: Trial) -> list[str]:
    pods = trial.children("pods").items()
    return [name for name, pod in pods if pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")]
