"""TF_CONFIG, letter by letter."""

from __future__ import annotations

import json

from helpers.clusterinmemory import plan_of
from helpers.manifests import master, parameter_servers, workers
from tfjob_controller.jobs.plan.model import Plan


def config_of(plan: Plan, replica_id: str) -> str:
    replica = next(replica for replica in plan.replicas.all if replica.id == replica_id)
    return plan.environment(replica)["TF_CONFIG"]


def test_tf_config_is_compact_with_keys_in_the_contracts_order() -> None:
    assert config_of(plan_of(), "ps-1") == (
        '{"cluster":{"master":["example-job-master-a6no-0:2222"],'
        '"ps":["example-job-ps-a6no-0:2222","example-job-ps-a6no-1:2222"],'
        '"worker":["example-job-worker-a6no-0:2222"]},'
        '"task":{"type":"ps","index":1},"environment":"cloud"}'
    )


def test_a_single_replica_gets_it_too() -> None:
    assert json.loads(config_of(plan_of(master()), "master-0"))["task"] == {"type": "master", "index": 0}


def test_a_type_without_replicas_is_left_out() -> None:
    plan = plan_of(master(), workers(0))
    assert list(json.loads(config_of(plan, "master-0"))["cluster"]) == ["master"]


def test_each_type_has_its_own_port() -> None:
    plan = plan_of(master(tfPort=3333), parameter_servers(1))
    assert json.loads(config_of(plan, "ps-0"))["cluster"] == {
        "master": ["example-job-master-a6no-0:3333"],
        "ps": ["example-job-ps-a6no-0:2222"],
    }


def test_addresses_stand_in_the_order_of_indexes_wherever_the_chief_is() -> None:
    chief = {"chief": {"replicaName": "WORKER", "replicaIndex": 2}}
    plan = plan_of(workers(11), terminationPolicy=chief)
    cluster = json.loads(config_of(plan, "worker-0"))["cluster"]
    assert cluster["worker"] == [f"example-job-worker-a6no-{index}:2222" for index in range(11)]
