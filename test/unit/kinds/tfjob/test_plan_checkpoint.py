"""Checkpoints of TFJobs: which pods save them, and which restore them."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.clusterinmemory import plan_of
from helpers.manifests import container, master, parameter_servers, pod_template, workers
from tfjob_controller.jobs.actions.children import build_job
from tfjob_controller.jobs.plan.gangterms import GangPolicy
from tfjob_controller.jobs.plan.model import Plan

Object = dict[str, Any]

CHECKPOINT = {"storageUri": "s3://bucket/job"}
BOTH, RESTORES = ["checkpoint-restore", "checkpoint-save"], ["checkpoint-restore"]
PROGRAM = {"TRAINJOB_CHECKPOINT_DIR", "TRAINJOB_RESUME_FROM"}


def plan(*entries: Object, **spec: Any) -> Plan:
    return plan_of(*entries, **{"checkpoint": CHECKPOINT, **spec})


def pod_specs(of: Plan) -> dict[str, Object]:
    return {each.id: build_job(of, each)["spec"]["template"]["spec"] for each in of.replicas.all}


def transfers(of: Plan) -> dict[str, list[str]]:
    """The init containers of each replica."""
    return {name: [each["name"] for each in spec.get("initContainers", ())] for name, spec in pod_specs(of).items()}


@pytest.mark.parametrize(
    ("entries", "chief", "expected"),
    [
        ((master(), workers(2)), None, {"master-0": BOTH, "worker-0": RESTORES, "worker-1": RESTORES}),
        ((workers(2),), None, {"worker-0": BOTH, "worker-1": RESTORES}),
        ((workers(2),), ("WORKER", 1), {"worker-0": RESTORES, "worker-1": BOTH}),
        ((master(), parameter_servers(1)), None, {"master-0": BOTH, "ps-0": []}),
        (
            (workers(1), parameter_servers(2, template=pod_template(container()))),
            ("PS", 1),
            {"worker-0": RESTORES, "ps-0": [], "ps-1": BOTH},
        ),
    ],
)
def test_the_chief_saves_and_masters_and_workers_restore(
    entries: tuple[Object, ...], chief: tuple[str, int] | None, expected: dict[str, list[str]]
) -> None:
    name, index = chief or ("", 0)
    policy = {"terminationPolicy": {"chief": {"replicaName": name, "replicaIndex": index}}} if chief else {}
    made = plan(*entries, **policy)
    assert transfers(made) == expected
    for replica, spec in pod_specs(made).items():
        (training,) = spec["containers"]
        told = {each["name"] for each in training["env"]} & PROGRAM
        assert told == (PROGRAM if expected[replica] else set()), replica


def test_a_job_without_checkpoints_has_the_pods_that_it_had() -> None:
    added = {"initContainers", "volumes", "terminationGracePeriodSeconds"}
    assert not any(added & each.keys() for each in pod_specs(plan_of(master(), workers(2))).values())
    assert plan_of().mounts.data_containers == frozenset()


def test_a_restart_of_a_replica_that_only_restores_recreates_its_pod_so_that_it_restores_again() -> None:
    open_template = pod_template(container())
    planned = plan(workers(2, template=open_template))
    assert [replica.restarts_in_place for replica in planned.replicas.all] == [True, False]
    planned = plan(master(), workers(1))
    assert [replica.restarts_in_place for replica in planned.replicas.all] == [True, True]


def test_the_chief_is_restarted_in_place_beside_its_sidecar() -> None:
    """As with any template with OnFailure, by rules of the single containers."""
    spec = pod_specs(plan(master(), restart_rules=True))["master-0"]
    policies = {each["name"]: each["restartPolicy"] for each in spec["initContainers"]}
    assert policies == {"checkpoint-restore": "OnFailure", "checkpoint-save": "Always"}
    assert spec["containers"][0]["restartPolicyRules"]


def test_a_gang_requests_what_its_chief_needs() -> None:
    saver = {"name": "checkpoint-save", "resources": {"requests": {"cpu": "2"}}}
    template = pod_template(container(resources={"requests": {"cpu": "1"}}), initContainers=[saver])
    made = plan(workers(2, template=template), gang={"enabled": True}, gangs=GangPolicy("on-request"))
    assert made.scheduling.gang is not None
    (member,) = made.scheduling.gang.members
    assert member.resources["cpu"] == "3"


def test_a_container_that_waits_for_its_secret_for_too_long_fails_the_job() -> None:
    assert plan().mounts.data_containers == {"checkpoint-restore", "checkpoint-save"}
