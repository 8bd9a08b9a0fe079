"""Bodies of child Jobs, Services and the ConfigMap."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from helpers.clusterinmemory import decoded, plan_of
from helpers.manifests import container, master, parameter_servers, pod_template, tfjob, workers
from helpers.trainworld import runtime_spec, train_plan
from tfjob_controller.api.controllerconfig import ControllerConfig
from tfjob_controller.jobs.actions.children import build_config_map, build_job, build_service
from tfjob_controller.jobs.plan.model import Plan
from tfjob_controller.kinds.tfjob.plan import build_plan

LABELS = {
    "kubeflow.org": "",
    "job_type": "PS",
    "runtime_id": "a6no",
    "tf_job_name": "example-job",
    "task_index": "1",
}
OWNER = {
    "apiVersion": "kubeflow.org/v1alpha1",
    "kind": "TFJob",
    "name": "example-job",
    "uid": "uid-job",
    "controller": True,
    "blockOwnerDeletion": True,
}


def job_of(plan: Plan, replica_id: str = "master-0", **options: Any) -> dict[str, Any]:
    return build_job(plan, next(replica for replica in plan.replicas.all if replica.id == replica_id), **options)


def pod_spec_of(plan: Plan, replica_id: str = "master-0") -> dict[str, Any]:
    spec: dict[str, Any] = job_of(plan, replica_id)["spec"]["template"]["spec"]
    return spec


def test_a_service_is_headless_and_open_before_anything_is_ready() -> None:
    plan = plan_of()
    assert build_service(plan, plan.replicas.by_name["example-job-ps-a6no-1"]) == {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "example-job-ps-a6no-1",
            "namespace": "ns",
            "labels": LABELS,
            "ownerReferences": [OWNER],
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": LABELS,
            "ports": [{"name": "tf-port", "port": 2222}],
        },
    }


def test_a_job_starts_one_pod_and_gives_up_with_it() -> None:
    body = job_of(plan_of(), "ps-1")
    spec = body["spec"]
    assert body["metadata"] == {
        "name": "example-job-ps-a6no-1",
        "namespace": "ns",
        "labels": LABELS,
        "ownerReferences": [OWNER],
    }
    assert (spec["completions"], spec["parallelism"], spec["backoffLimit"]) == (1, 1, 0)
    assert spec["podReplacementPolicy"] == "Failed"
    assert spec["template"]["metadata"]["labels"] == LABELS
    assert "suspend" not in spec


@pytest.mark.parametrize(("given", "made"), [(0, 1), (2, 2), (None, None)])
def test_a_deleted_pod_stays_until_its_kubelet_has_ended_its_programs(given: int | None, made: int | None) -> None:
    """With 0 the API server removes it at once."""
    fields = {} if given is None else {"terminationGracePeriodSeconds": given}
    plan = plan_of(master(template=pod_template(container(), **fields)))
    assert pod_spec_of(plan).get("terminationGracePeriodSeconds") == made


def test_the_templates_own_labels_and_annotations_stay_but_ours_win() -> None:
    template = {
        **pod_template(container()),
        "metadata": {"labels": {"team": "a", "job_type": "mine"}, "annotations": {"note": "b"}},
    }
    metadata = job_of(plan_of(master(template=template)))["spec"]["template"]["metadata"]
    assert metadata["annotations"] == {"note": "b"}
    assert (metadata["labels"]["team"], metadata["labels"]["job_type"]) == ("a", "MASTER")


def test_tf_config_goes_to_the_training_container_alone_after_the_users_variables() -> None:
    own = [{"name": "A", "value": "1"}, {"name": "TF_CONFIG", "value": "mine"}]
    spec = pod_spec_of(plan_of(master(template=pod_template(container("side"), container(env=own)))))
    side, training = spec["containers"]
    assert "env" not in side
    assert [each["name"] for each in training["env"]] == ["A", "TF_CONFIG"]
    assert json.loads(training["env"][1]["value"])["task"] == {"type": "master", "index": 0}


RULES = [{"action": "Restart", "exitCodes": {"operator": "In", "values": list(range(128, 256))}}]


@pytest.mark.parametrize("restart_policy", ["OnFailure", None])
def test_a_worker_with_on_failure_is_restarted_in_place_after_any_error(restart_policy: str | None) -> None:
    template = pod_template(
        container(), initContainers=[container("init")], **({"restartPolicy": restart_policy} if restart_policy else {})
    )
    spec = pod_spec_of(plan_of(master(), workers(1, template=template)), "worker-0")
    assert spec["restartPolicy"] == "Never"
    assert spec["containers"][0]["restartPolicy"] == "OnFailure"
    assert spec["initContainers"][0]["restartPolicy"] == "OnFailure"


@pytest.mark.parametrize("spec", [{}, {"failurePolicy": "AnyReplica"}])
def test_a_replica_that_decides_is_restarted_in_place_for_retryable_codes_only(spec: dict[str, str]) -> None:
    template = pod_template(container("side"), container(), initContainers=[container("init")])
    plan = plan_of(master(template=template), workers(1, template=template), **spec)
    for replica in (each for each in plan.replicas.all if each.decides):
        pod_spec = pod_spec_of(plan, replica.id)
        side, training = pod_spec["containers"]
        assert pod_spec["restartPolicy"] == "Never"
        assert (training["restartPolicy"], training["restartPolicyRules"]) == ("Never", RULES)
        assert side["restartPolicy"] == "OnFailure"
        (init,) = pod_spec["initContainers"]
        assert (init["restartPolicy"], init["restartPolicyRules"]) == ("Never", RULES)


def rule(action: str, exit_code: int = 42) -> dict[str, Any]:
    return {"action": action, "exitCodes": {"operator": "In", "values": [exit_code]}}


def policy_of(built: dict[str, Any]) -> dict[str, Any]:
    return {name: built[name] for name in ("restartPolicy", "restartPolicyRules") if name in built}


OWN_POLICIES = pytest.mark.parametrize(
    "own",
    [
        pytest.param({}, id="none"),
        pytest.param({"restartPolicy": "OnFailure"}, id="OnFailure"),
        pytest.param({"restartPolicy": "OnFailure", "restartPolicyRules": [rule("Restart", 0)]}, id="rules"),
        pytest.param({"restartPolicy": "Never", "restartPolicyRules": [rule("Restart")]}, id="Never with rules"),
        pytest.param({"restartPolicy": "Never", "restartPolicyRules": [rule("RestartAllContainers")]}, id="all"),
    ],
)


@OWN_POLICIES
def test_of_policies_of_a_container_whose_exit_codes_count_only_never_counts(own: dict[str, Any]) -> None:
    template = pod_template(container(**own), initContainers=[container("init", **own)])
    plan = plan_of(master(template=template), workers(1, template=template))
    in_place = {
        "master-0": {"restartPolicy": "Never", "restartPolicyRules": RULES},
        "worker-0": {"restartPolicy": "OnFailure"},
    }
    for replica_id, policy in in_place.items():
        spec = pod_spec_of(plan, replica_id)
        for built in (*spec["containers"], *spec["initContainers"]):
            assert policy_of(built) == ({} if own.get("restartPolicy") == "Never" else policy)


@OWN_POLICIES
def test_the_kubelet_restarts_no_replica_whose_pod_has_never(own: dict[str, Any]) -> None:
    template = pod_template(
        container("side"), container(**own), restartPolicy="Never", initContainers=[container("init", **own)]
    )
    plan = plan_of(master(template=template), workers(1, template=template))
    for replica in plan.replicas.all:
        spec = pod_spec_of(plan, replica.id)
        assert spec["restartPolicy"] == "Never"
        assert all(policy_of(built) == {} for built in (*spec["containers"], *spec["initContainers"]))


@OWN_POLICIES
def test_the_kubelet_restarts_no_node_that_restarts_with_all_others(own: dict[str, Any]) -> None:
    template = pod_template(container("node", **own), initContainers=[container("init", **own)])
    plan = train_plan(runtime=runtime_spec(templates={"node": template}))
    spec = pod_spec_of(plan, "node-0")
    assert spec["restartPolicy"] == "Never"
    assert all(policy_of(built) == {} for built in (*spec["containers"], *spec["initContainers"]))


def test_sidecars_keep_restart_policies_of_their_own() -> None:
    own = {"restartPolicy": "Never", "restartPolicyRules": [rule("Restart")]}
    template = pod_template(
        container("side", **own), container(), initContainers=[container("native", restartPolicy="Always")]
    )
    spec = pod_spec_of(plan_of(master(template=template)))
    assert policy_of(spec["initContainers"][0]) == {"restartPolicy": "Always"}
    assert policy_of(spec["containers"][0]) == own


def test_a_sidecar_restarts_no_container_beside_it() -> None:
    rules = [rule("RestartAllContainers", 1), rule("Restart", 2)]
    template = pod_template(
        container("side", restartPolicy="Never", restartPolicyRules=rules),
        container(),
        initContainers=[container("native", restartPolicy="Always", restartPolicyRules=rules)],
    )
    plan = plan_of(master(template=template), workers(1, template=template))
    for replica in plan.replicas.all:
        spec = pod_spec_of(plan, replica.id)
        for built in (spec["containers"][0], spec["initContainers"][0]):
            assert built["restartPolicyRules"] == [rule("Restart", 1), rule("Restart", 2)]


def test_a_server_without_restart_policies_of_containers_gets_none() -> None:
    plan = plan_of(master(), workers(1), restart_rules=False)
    for replica in plan.replicas.all:
        spec = pod_spec_of(plan, replica.id)
        assert spec["restartPolicy"] == "Never"
        assert "restartPolicy" not in spec["containers"][0]


def test_a_training_container_that_would_always_run_again_runs_again_after_failures_only() -> None:
    own = pod_template(container(restartPolicy="Always"))
    plan = plan_of(master(), workers(1, template=own), parameter_servers(1, template=own))
    for replica_id in ("worker-0", "ps-0"):
        assert policy_of(pod_spec_of(plan, replica_id)["containers"][0]) == {"restartPolicy": "OnFailure"}


def test_a_job_carries_how_often_its_replica_was_restarted_before() -> None:
    body = job_of(plan_of(), restarts=3)
    assert body["metadata"]["labels"]["kubeflow.org/restarts"] == "3"
    assert "kubeflow.org/restarts" not in body["spec"]["template"]["metadata"]["labels"]
    assert "kubeflow.org/restarts" not in job_of(plan_of())["metadata"]["labels"]


@pytest.mark.parametrize(
    ("field", "job_field"), [("schedulerName", "schedulerName"), ("priorityClassName", "priorityClassName")]
)
def test_a_jobs_scheduler_and_priority_fill_in_for_templates_without(field: str, job_field: str) -> None:
    own = pod_template(container(), **{field: "mine"})
    plan = plan_of(master(), workers(1, template=own), **{job_field: "ours"})
    assert pod_spec_of(plan, "master-0")[field] == "ours"
    assert pod_spec_of(plan, "worker-0")[field] == "mine"


def test_a_ps_without_template_runs_the_default_server_from_the_config_map() -> None:
    spec = pod_spec_of(plan_of(tfImage="localhost/tf"), "ps-0")
    (server,) = spec["containers"]
    assert (server["name"], server["image"]) == ("tensorflow", "localhost/tf")
    assert server["volumeMounts"] == [{"name": "ps-config-volume", "mountPath": "/ps-server"}]
    assert spec["volumes"] == [{"name": "ps-config-volume", "configMap": {"name": "cm-ps-a6no"}}]
    assert server["env"][0]["name"] == "TF_CONFIG"


def test_a_ps_template_without_the_container_keeps_what_it_has() -> None:
    template = pod_template(container("side"), volumes=[{"name": "v"}], nodeSelector={"a": "b"})
    spec = pod_spec_of(plan_of(master(), parameter_servers(1, template=template)), "ps-0")
    assert [each["name"] for each in spec["containers"]] == ["side", "tensorflow"]
    assert [each["name"] for each in spec["volumes"]] == ["v", "ps-config-volume"]
    assert spec["nodeSelector"] == {"a": "b"}


def test_the_default_image_is_the_controllers() -> None:
    job = decoded(tfjob(master(), parameter_servers(1)))
    plan = build_plan(job, ControllerConfig(tf_image="ours"))
    assert pod_spec_of(plan, "ps-0")["containers"][0]["image"] == "ours"


def test_the_config_map_holds_the_script_that_the_command_runs() -> None:
    plan = plan_of()
    body = build_config_map(plan)
    (script,) = body["data"]
    assert body["metadata"]["name"] == "cm-ps-a6no"
    assert body["metadata"]["ownerReferences"] == [OWNER]
    assert pod_spec_of(plan, "ps-0")["containers"][0]["command"][-1].endswith(f" /ps-server/{script}")


def test_building_children_leaves_the_job_as_it_was() -> None:
    job = decoded(tfjob(master(template=pod_template(container(env=[{"name": "A"}]))), parameter_servers(1)))
    before = copy.deepcopy(job)
    plan = build_plan(job, ControllerConfig(), restart_rules=True)
    for replica in plan.replicas.all:
        build_job(plan, replica)
    assert job == before


@pytest.mark.parametrize("own", ["File", None])
def test_the_end_of_a_log_stays_with_the_pod_unless_the_template_says_otherwise(own: str | None) -> None:
    fields = {} if own is None else {"terminationMessagePolicy": own}
    template = pod_template(container(**fields), container("log"))
    plan = plan_of(master(template=template), workers(1, template=template))
    for replica in plan.replicas.all:
        first, second = build_job(plan, replica)["spec"]["template"]["spec"]["containers"]
        assert first["terminationMessagePolicy"] == (own or "FallbackToLogsOnError")
        assert "terminationMessagePolicy" not in second
