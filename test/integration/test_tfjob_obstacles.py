"""Obstacles of a TFJob on a real API server: quotas, foreign objects, lost responses, refused templates."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.cluster import Cluster, set_pod_terminated
from helpers.controller import Jobs, running_controller
from helpers.kubectl import Kubectl
from helpers.manifests import container, master, parameter_servers, pod_template, tfjob, workers
from helpers.playground import Trial
from helpers.poll import PATIENCE_SECONDS, eventually
from localcluster.api import Api
from localcluster.fakekubelet import RUN_SECONDS, FakeKubelet
from localcluster.faultproxy import FaultProxy, Late, LoseAnswer, Seen
from tfjob_controller.programs.manager import Manager

pytestmark = pytest.mark.cluster

Object = dict[str, Any]

NAME = "example-job"


@pytest.fixture
def proxy(control_plane: Cluster, kubelet: FakeKubelet) -> Iterator[FaultProxy]:
    with FaultProxy(control_plane.own.server) as proxy:
        yield proxy


@pytest.fixture
def controller(
    control_plane: Cluster, kubectl: Kubectl, namespace: str, proxy: FaultProxy, tmp_path: Path
) -> Iterator[Manager]:
    """In the test's own namespace, through the proxy."""
    with running_controller(proxy.kubeconfig(tmp_path, control_plane.own.token), namespace) as manager:
        yield manager


@pytest.fixture
def jobs(api: Api, namespace: str) -> Jobs:
    return Jobs(api, namespace)


def lasting(seconds: float) -> Object:
    return {"metadata": {"annotations": {RUN_SECONDS: str(seconds)}}, **pod_template(container())}


def await_status(jobs: Jobs, *words: str) -> Object:
    eventually(lambda: all(word in jobs.status().get("reason", "") for word in words))
    return jobs.status()


# Quota


def quota(amounts: dict[str, str]) -> Object:
    metadata = {"name": "limited"}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": amounts}}


def set_quota(api: Api, namespace: str, amounts: dict[str, str]) -> None:
    """And wait until it is counted: before that it refuses everything in other words."""
    path = f"/api/v1/namespaces/{namespace}/resourcequotas"
    if not api.create_if_missing(path, quota(amounts)):
        api.patch(f"{path}/limited", {"spec": {"hard": amounts}})
    eventually(lambda: api.get(f"{path}/limited").get("status", {}).get("hard") == amounts)


def test_a_quota_shows_as_the_reason_and_the_job_goes_on_once_it_is_raised(
    controller: Manager, jobs: Jobs, api: Api, namespace: str
) -> None:
    set_quota(api, namespace, {"count/jobs.batch": "1"})
    jobs.submit(tfjob(master(), workers(2)))
    status = await_status(jobs, "cannot create Job example-job-", "exceeded quota: limited")
    assert status["phase"] in ("Creating", "Running")
    eventually(lambda: "FailedCreate" in [each["reason"] for each in jobs.events()])
    assert len(jobs.children("jobs")) == 1
    set_quota(api, namespace, {"count/jobs.batch": "3"})
    eventually(lambda: jobs.status().get("ready") == {"master": "1/1", "worker": "2/2"})
    status = jobs.status()
    assert (status["phase"], status.get("reason", "")) == ("Running", "")


def test_a_quota_of_pods_is_the_job_controllers_affair_and_is_waited_for(
    controller: Manager, jobs: Jobs, api: Api, namespace: str
) -> None:
    set_quota(api, namespace, {"pods": "0"})
    jobs.submit(tfjob(master(template=lasting(0.5))))
    eventually(lambda: len(jobs.children("jobs")) == 1)
    assert jobs.await_phase("Creating")["state"] == "Running"
    # Its Events say why it creates no pod.
    await_status(jobs, "master-0: FailedCreate: Error creating: ", "exceeded quota")
    set_quota(api, namespace, {"pods": "5"})
    # The Job controller waits ever longer between its attempts.
    jobs.await_phase("Done", timeout=3 * PATIENCE_SECONDS)


# A template that the API refuses


def test_a_template_that_the_server_refuses_ends_the_job_with_the_servers_message(trial: Trial) -> None:
    template = pod_template(container(volumeMounts=[{"name": "nope", "mountPath": "/data"}]))
    trial.submit(master(), workers(2, template=template), parameter_servers(1))
    status = trial.await_end()
    assert (status["phase"], status["state"]) == ("Failed", "Failed")
    assert status["reason"].startswith("cannot create Job trial-")
    for word in ("is invalid", "volumeMounts[0].name", 'Not found: "nope"'):
        assert word in status["reason"]
    (failed,) = [each for each in status["conditions"] if each["type"] == "Failed"]
    assert (failed["status"], failed["reason"]) == ("True", "CreateRefused")
    # What could be made is stopped again, and nothing is tried anew.
    eventually(lambda: all(each["spec"]["suspend"] for each in trial.children("jobs").values()))
    assert trial.child("worker-0") not in trial.children("jobs")
    assert trial.await_event("FailedCreate", "is invalid")["type"] == "Warning"


# Answers that never come


def test_lost_answers_make_nothing_twice_and_the_job_ends_well(
    controller: Manager, proxy: FaultProxy, jobs: Jobs
) -> None:
    """test_faults.py loses requests and has all kinds of refusals."""
    for method, path in (("POST", "/jobs"), ("PATCH", f"/tfjobs/{NAME}"), ("PATCH", "/jobs/")):
        proxy.next(LoseAnswer(), method=method, path=path, times=2)
    jobs.submit(tfjob(master(), workers(1), parameter_servers(1)))
    # The replicas end only when everything was created: a job that is over creates nothing any more.
    for plural in ("jobs", "services"):
        eventually(lambda plural=plural: len(jobs.children(plural)) == 3)  # type: ignore[misc]
    for role in ("worker", "master"):
        jobs.end_replica(role)
    status = jobs.await_phase("Done", timeout=PATIENCE_SECONDS)
    assert (status["state"], status.get("restarts", 0)) == ("Succeeded", 0)
    assert any(each.fault for each in proxy.seen)
    assert len(jobs.children("jobs")) == len(jobs.children("services")) == 3
    (server,) = [each for name, each in jobs.children("jobs").items() if "-ps-" in name]
    assert server["spec"]["suspend"] is True
    assert len({each["metadata"]["labels"]["runtime_id"] for each in jobs.children("jobs").values()}) == 1


# Foreign objects


def service(name: str, **metadata: Any) -> Object:
    spec = {"clusterIP": "None", "ports": [{"port": 80}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, **metadata}, "spec": spec}


def test_a_foreign_object_under_a_childs_name_is_named_and_untouched_until_it_goes(
    controller: Manager, jobs: Jobs, api: Api, namespace: str
) -> None:
    name, path = "example-job-worker-abcd-0", f"/api/v1/namespaces/{namespace}/services"
    before = api.create(path, service(name))
    jobs.submit(tfjob(master(), workers(1), RuntimeId="abcd"))
    status = await_status(jobs, f"cannot create Service {name}: Service {name} exists already and is not this job's")
    assert status["phase"] in ("Creating", "Running")
    assert api.get(f"{path}/{name}")["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    eventually(lambda: "FailedCreate" in [each["reason"] for each in jobs.events()])
    api.delete(f"{path}/{name}")
    eventually(lambda: name in jobs.children("services"))
    eventually(lambda: jobs.status().get("reason", "") == "")
    assert api.get(f"{path}/{name}")["metadata"]["ownerReferences"][0]["name"] == NAME


# Deletion


def test_a_deleted_job_takes_all_its_children_along(trial: Trial) -> None:
    trial.submit(master(), workers(2), parameter_servers(1))
    trial.await_phase("Running")
    runtime_id = trial.runtime_id
    trial.jobs.api.delete(f"{trial.jobs.path}/{trial.name}", propagationPolicy="Foreground")

    def left() -> list[str]:
        return [
            name
            for plural in ("jobs", "services", "configmaps", "pods")
            for name, each in trial.jobs.children(plural).items()
            if each["metadata"]["labels"]["runtime_id"] == runtime_id
        ]

    eventually(lambda: not left() and trial.status() == {})


def has_asked_for_jobs(seen: list[Seen]) -> bool:
    return any("/tfjobs?" in each.path and each.fault is None for each in seen)


def test_nothing_is_recreated_for_a_job_that_goes_while_the_watch_of_jobs_is_silent(
    controller: Manager, proxy: FaultProxy, jobs: Jobs, api: Api
) -> None:
    """The garbage collector takes its children away one by one, and their watches tell of it."""
    jobs.submit(tfjob(master(), workers(1)))
    jobs.await_phase("Running", timeout=PATIENCE_SECONDS)
    job = f"{jobs.path}/{NAME}"
    api.patch(job, {"metadata": {"finalizers": ["example.com/held"]}})
    proxy.choose = lambda _, path: Late(600.0) if "/tfjobs?" in path and "watch=1" in path else None
    proxy.cut_all()
    eventually(lambda: any(each.fault for each in proxy.seen))
    before = len(proxy.seen)
    try:
        api.delete(job, propagationPolicy="Foreground")
        eventually(lambda: has_asked_for_jobs(proxy.seen[before:]))
        eventually(lambda: not jobs.children("services") and not jobs.children("jobs"))
        made = [each.path.partition("?")[0] for each in proxy.seen[before:] if each.method == "POST"]
        assert not [path for path in made if path.endswith(("/services", "/jobs", "/configmaps"))]
    finally:
        api.patch(job, {"metadata": {"finalizers": None}})


def test_children_that_a_deleted_job_leaves_behind_as_orphans_are_nobodys(trial: Trial) -> None:
    trial.submit(master())
    trial.await_phase("Running")
    name = trial.child("master-0")
    path = trial.child_path("jobs", name)
    trial.jobs.api.delete(f"{trial.jobs.path}/{trial.name}", propagationPolicy="Orphan")
    eventually(lambda: trial.status() == {})
    (pod,) = [each for each in trial.jobs.children("pods") if each.startswith(name)]
    set_pod_terminated(trial.jobs.api, trial.namespace, pod)
    eventually(lambda: trial.jobs.api.get(path).get("status", {}).get("succeeded") == 1)
    assert "ownerReferences" not in trial.jobs.api.get(path)["metadata"]
    trial.jobs.api.delete(path, propagationPolicy="Background")
    trial.jobs.api.delete(trial.child_path("services", name))


def test_a_namespace_that_goes_takes_its_jobs_along_and_the_controller_stays_well(
    controller: Manager, jobs: Jobs, api: Api, namespace: str
) -> None:
    jobs.submit(tfjob(master(), workers(3), parameter_servers(1)))
    jobs.submit(tfjob(master(), name="another", suspend=True))
    jobs.await_phase("Running", timeout=PATIENCE_SECONDS)
    api.delete(f"/api/v1/namespaces/{namespace}")
    eventually(lambda: api.find(f"/api/v1/namespaces/{namespace}") is None)
    eventually(lambda: controller.jobs["tfjob"].jobs.store.list() == [])
    assert controller.problems() == []
