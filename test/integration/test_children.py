"""Child Jobs with the real Job controller: the contract of jobs/actions/children.py."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from helpers.cluster import set_pod_running, set_pod_terminated
from helpers.clusterinmemory import plan_of
from helpers.kubernetesversion import RESTART_RULES, running_version
from helpers.manifests import container, master, parameter_servers, pod_template, workers
from helpers.poll import eventually
from localcluster.api import Api
from tfjob_controller.jobs.actions.children import Body, build_config_map, build_job, build_service
from tfjob_controller.jobs.plan.model import Plan
from tfjob_controller.programs.manager import RESTART_RULES_SINCE

IMAGE = "localhost/none"


def template(restart_policy: str) -> dict[str, Any]:
    init = container("init", image=IMAGE)
    return pod_template(
        container("side", image=IMAGE),
        container(image=IMAGE),
        initContainers=[init],
        restartPolicy=restart_policy,
        # Nobody schedules or runs these pods: the test is their kubelet.
        schedulerName="nobody",
    )


def plan(restart_policy: str = "OnFailure", **spec: Any) -> Plan:
    pods = template(restart_policy)
    entries = (master(template=pods), workers(1, template=pods), parameter_servers(1))
    chosen = {"restart_rules": running_version() >= RESTART_RULES_SINCE, "schedulerName": "nobody", **spec}
    return plan_of(*entries, tfImage=IMAGE, **chosen)


def path_of(body: Body, namespace: str, name: str = "") -> str:
    group = "/apis/batch/v1" if body["kind"] == "Job" else "/api/v1"
    return f"{group}/namespaces/{namespace}/{body['kind'].lower()}s" + (f"/{name}" if name else "")


def create(api: Api, namespace: str, body: Body) -> Body:
    """As the controller does, but in the test's namespace and with no owner that the garbage collector misses."""
    metadata = {name: value for name, value in body["metadata"].items() if name != "ownerReferences"}
    sent = {**body, "metadata": {**metadata, "namespace": namespace}}
    return api.create(path_of(body, namespace), msgspec.to_builtins(sent))


@pytest.mark.parametrize(
    ("restart_policy", "failure_policy", "restart_rules"),
    [
        pytest.param("OnFailure", "AnyReplica", True, marks=pytest.mark.kubernetes("1.35", RESTART_RULES)),
        pytest.param("OnFailure", "Chief", True, marks=pytest.mark.kubernetes("1.35", RESTART_RULES)),
        ("Never", "AnyReplica", False),
    ],
)
def test_the_server_takes_every_child_as_it_is_built(
    api: Api, namespace: str, restart_policy: str, failure_policy: str, restart_rules: bool
) -> None:
    made = plan(restart_policy, failurePolicy=failure_policy, restart_rules=restart_rules)
    create(api, namespace, build_config_map(made))
    for replica in made.replicas.all:
        create(api, namespace, build_service(made, replica))
        body = build_job(made, replica)
        stored = create(api, namespace, body)
        sent, kept = body["spec"]["template"]["spec"], stored["spec"]["template"]["spec"]
        assert stored["spec"].get("podFailurePolicy") == body["spec"].get("podFailurePolicy")
        for wanted, found in zip(sent["containers"], kept["containers"], strict=True):
            assert found.get("restartPolicyRules") == wanted.get("restartPolicyRules")


@pytest.mark.parametrize("job_name", ["0.is-first.and-has-dots", "a" * 253])
def test_the_server_takes_children_of_a_job_of_any_name(api: Api, namespace: str, job_name: str) -> None:
    made = plan_of(name=job_name, restart_rules=running_version() >= RESTART_RULES_SINCE)
    create(api, namespace, build_service(made, made.replicas.chief))
    create(api, namespace, build_job(made, made.replicas.chief))


def pods_of(api: Api, namespace: str, job: Body) -> list[Body]:
    selector = f"batch.kubernetes.io/job-name={job['metadata']['name']}"
    found = api.list(f"/api/v1/namespaces/{namespace}/pods", selector)
    return sorted(found, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))


def newest_unfinished(api: Api, namespace: str, job: Body) -> Body | None:
    pods = pods_of(api, namespace, job)
    return next((pod for pod in pods if pod.get("status", {}).get("phase") == "Pending"), None)


def conditions_of(api: Api, namespace: str, job: Body) -> set[str]:
    """The types of its Job's conditions that are true."""
    status = api.get(path_of(job, namespace, job["metadata"]["name"])).get("status", {})
    return {each["type"] for each in status.get("conditions", ()) if each["status"] == "True"}


def chief_ends(api: Api, namespace: str, restart_policy: str, exit_code: int) -> tuple[Body, str]:
    """The chief's pod ends with this code; its Job and the pod's name."""
    made = plan(restart_policy)
    job = create(api, namespace, build_job(made, made.replicas.chief))
    pod = pending_pod(api, namespace, job)
    name = pod["metadata"]["name"]
    set_pod_running(api, namespace, name)
    set_pod_terminated(api, namespace, name, exit_code, container="tensorflow")
    return job, name


def pending_pod(api: Api, namespace: str, job: Body) -> Body:
    """The pod that the Job controller makes."""
    return eventually(lambda: newest_unfinished(api, namespace, job) or {})


@pytest.mark.parametrize(
    ("restart_policy", "exit_code"),
    [pytest.param("OnFailure", 3, marks=pytest.mark.kubernetes("1.35", RESTART_RULES)), ("Never", 137)],
)
def test_a_job_gives_up_with_its_pod_whatever_the_error(
    api: Api, namespace: str, restart_policy: str, exit_code: int
) -> None:
    job, pod = chief_ends(api, namespace, restart_policy, exit_code)
    assert_has_failed_with_its_only_pod(api, namespace, job, pod)


def test_a_job_gives_up_with_its_pod_also_if_that_was_disrupted(api: Api, namespace: str) -> None:
    made = plan("Never")
    job = create(api, namespace, build_job(made, made.replicas.chief))
    name = pending_pod(api, namespace, job)["metadata"]["name"]
    disrupted = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    api.patch(f"/api/v1/namespaces/{namespace}/pods/{name}/status", {"status": {"conditions": [disrupted]}})
    set_pod_terminated_keeping_conditions(api, namespace, name, 1, disrupted)
    assert_has_failed_with_its_only_pod(api, namespace, job, name)


def assert_has_failed_with_its_only_pod(api: Api, namespace: str, job: Body, pod: str) -> None:
    """The Job controller creates no pod for a Job with the condition Failed."""
    eventually(lambda: "Failed" in conditions_of(api, namespace, job))
    assert [each["metadata"]["name"] for each in pods_of(api, namespace, job)] == [pod]
    assert api.get(path_of(job, namespace, job["metadata"]["name"]))["status"]["failed"] == 1


def set_pod_terminated_keeping_conditions(
    api: Api, namespace: str, name: str, exit_code: int, condition: dict[str, str]
) -> None:
    """One patch, as kubelets write it: the Job controller must never see the end without the disruption."""
    ended = {"terminated": {"exitCode": exit_code, "reason": "Error"}}
    fixed = {"ready": False, "restartCount": 0, "image": IMAGE, "imageID": "", "state": ended}
    statuses = [{"name": "side", **fixed}, {"name": "tensorflow", **fixed}]
    status = {"phase": "Failed", "conditions": [condition], "containerStatuses": statuses}
    api.patch(f"/api/v1/namespaces/{namespace}/pods/{name}/status", {"status": status})


def test_a_suspended_job_loses_its_running_pod_and_is_not_failed(api: Api, namespace: str) -> None:
    made = plan()
    job = create(api, namespace, build_job(made, made.replicas.all[1]))
    pending_pod(api, namespace, job)
    path = path_of(job, namespace, job["metadata"]["name"])
    api.patch(path, {"spec": {"suspend": True}})
    eventually(lambda: pods_of(api, namespace, job) == [])
    eventually(lambda: "Suspended" in conditions_of(api, namespace, job))
    assert api.get(path)["status"].get("failed", 0) == 0
