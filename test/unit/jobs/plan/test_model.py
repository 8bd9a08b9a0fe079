"""What a TFJob is compiled into."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.clusterinmemory import decoded, plan_of
from helpers.manifests import container, master, parameter_servers, pod_template, tfjob, workers
from tfjob_controller.api.controllerconfig import Accelerator, ControllerConfig, EnvVar
from tfjob_controller.kinds.tfjob.plan import build_plan


def test_the_tutorials_job_has_four_replicas_the_chief_first() -> None:
    plan = plan_of()
    assert [replica.id for replica in plan.replicas.all] == ["master-0", "worker-0", "ps-0", "ps-1"]
    assert plan.replicas.chief.id == "master-0"
    assert plan.replicas.by_name["example-job-ps-a6no-1"].id == "ps-1"


def test_the_chief_comes_first_wherever_it_is_listed() -> None:
    plan = plan_of(parameter_servers(1), workers(2), terminationPolicy={"chief": {"replicaName": "WORKER"}})
    assert [replica.id for replica in plan.replicas.all] == ["worker-0", "ps-0", "worker-1"]


def test_the_scale_subresource_overrides_the_number_of_workers() -> None:
    plan = plan_of(master(), workers(1), workerReplicas=3)
    assert [replica.id for replica in plan.replicas.all] == ["master-0", "worker-0", "worker-1", "worker-2"]


def test_a_type_with_no_replicas_is_still_a_role() -> None:
    assert [(role.name, role.replicas) for role in plan_of(master(), workers(0)).replicas.roles] == [
        ("master", 1),
        ("worker", 0),
    ]


def test_only_the_chief_decides_unless_any_replica_may() -> None:
    by_chief, by_any = plan_of(), plan_of(failurePolicy="AnyReplica")
    assert [replica.id for replica in by_chief.replicas.all if replica.decides] == ["master-0"]
    assert all(replica.decides for replica in by_any.replicas.all)


@pytest.mark.parametrize(
    ("restart_rules", "restart_policy", "in_place"),
    [
        pytest.param(True, "OnFailure", True, id="OnFailure"),
        pytest.param(False, "OnFailure", False, id="OnFailure on an old server"),
        pytest.param(True, "Never", False, id="Never"),
    ],
)
def test_replicas_restart_in_place_if_their_template_and_the_server_allow_it(
    restart_rules: bool, restart_policy: str, in_place: bool
) -> None:
    template = pod_template({"name": "tensorflow"}, restartPolicy=restart_policy)
    plan = plan_of(master(template=template), workers(1, template=template), restart_rules=restart_rules)
    assert [replica.restarts_in_place for replica in plan.replicas.all] == [in_place, in_place]


def test_parameter_servers_serve_but_not_as_chief() -> None:
    plan = plan_of(
        parameter_servers(2, template=pod_template(container())), terminationPolicy={"chief": {"replicaName": "PS"}}
    )
    assert [replica.serves for replica in plan.replicas.all] == [False, True]


@pytest.mark.parametrize(
    ("template", "config_map"),
    [
        pytest.param(None, "cm-ps-a6no", id="no template"),
        pytest.param(pod_template(container("other")), "cm-ps-a6no", id="another container"),
        pytest.param(pod_template({"name": "tensorflow"}), "cm-ps-a6no", id="no image"),
        pytest.param(pod_template(container()), "", id="an image"),
    ],
)
def test_only_a_ps_without_an_image_of_its_own_needs_the_config_map(template: Any, config_map: str) -> None:
    assert plan_of(master(), parameter_servers(1, template=template)).mounts.config_map == config_map


def test_accelerators_of_the_controllers_config_are_filled_in() -> None:
    asks = {"name": "tensorflow", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    job = decoded(tfjob(master(template=pod_template(asks)), workers(1)))
    config = ControllerConfig(accelerators={"nvidia.com/gpu": Accelerator(env_vars=(EnvVar("A", "b"),))})
    with_gpu, without = build_plan(job, config).replicas.roles
    assert with_gpu.template["spec"]["containers"][0]["env"] == [{"name": "A", "value": "b"}]
    assert "env" not in without.template["spec"]["containers"][0]
