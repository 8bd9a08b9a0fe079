"""Programs report their progress: with tokens of a real API server, over TLS, for TrainJobs of both API groups."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.request import urlopen

import pytest

from helpers.cluster import Cluster, new_namespace, own_plane
from helpers.controller import Jobs
from helpers.kubeflowjobs import KubeflowCluster, kubeflow_cluster
from helpers.playground import Playground, Trial
from helpers.poll import PATIENCE_SECONDS, eventually, until
from helpers.progressreports import CA_VARIABLE, URL_VARIABLE, Reporter, sources_of, token_of
from helpers.trainjobs import env_of
from localcluster.crds import install_crds
from localcluster.programs import Options
from tfjob_controller.flags import BindAddress
from tfjob_controller.programs.manager import Manager

pytestmark = pytest.mark.cluster

Object = dict[str, Any]


@pytest.fixture(scope="module")
def plane() -> Iterator[Cluster]:
    """Its API server gives pods the account whose tokens they mount, as those of real clusters do."""
    with own_plane("progress", Options(service_account_admission=True)) as cluster:
        install_crds(cluster.api)
        yield cluster


@pytest.fixture(scope="module")
def kubeflow(plane: Cluster) -> Iterator[KubeflowCluster]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with kubeflow_cluster(
        plane,
        progress_server=True,
        progress_server_bind_address=BindAddress("127.0.0.1", port),
        progress_server_url=f"https://127.0.0.1:{port}",
    ) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def playground(kubeflow: KubeflowCluster) -> Playground:
    return Playground(kubeflow.manager, Jobs(kubeflow.api, kubeflow.namespace), kubeflow.script)


@pytest.fixture
def train(playground: Playground) -> Iterator[Trial]:
    trial = playground.new_train_trial()
    yield trial
    trial.clear()


def metric(name: str, value: str) -> Object:
    return {"name": name, "value": value}


def reporter_of(trial: Trial, node: str = "node-0") -> Reporter:
    """The program of a running node. The controller has seen its pod."""
    pod = trial.await_running(node)
    trial.await_status(lambda status: status.get("nodes", "0").partition("/")[0] != "0")
    return Reporter.of(trial.jobs.api, pod)


def exposition(manager: Manager) -> str:
    ports = [server.port for server in manager.servers]
    for port in ports:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_SECONDS) as response:
            if response.status == 200:
                return str(response.read().decode())
    raise AssertionError("no server has /metrics")


def test_a_report_is_in_the_status_and_at_the_metrics(train: Trial) -> None:
    train.train(2)
    reporter = reporter_of(train)
    response = reporter.report(
        progressPercentage=40,
        estimatedRemainingSeconds=330,
        metrics=[
            {"name": "loss", "value": "0.25"},
            {"name": "eval/f1", "value": "nan"},
            {"name": "note", "value": "x"},
        ],
        lastUpdatedTime="2026-01-31T12:00:00.250000+00:00",
    )
    assert response.code == 200, response
    status = train.await_status(lambda status: status.get("progress"))
    assert status["progress"] == "40 %, about 5m left"
    time = "2026-01-31T12:00:00Z"
    assert status["metrics"] == [
        {"name": "loss", "value": "0.25", "logTime": time},
        {"name": "eval/f1", "value": "NaN", "logTime": time},
    ]
    assert status["trainerStatus"]["lastUpdatedTime"] == time
    assert status["trainerStatus"]["metrics"][2] == metric("note", "x")
    series = f'{{job="{train.name}",kind="TrainJob",metric="%s",namespace="{train.namespace}"}} %s'
    for shown in (("loss", "0.25"), ("progress_percentage", "40.0")):
        eventually(lambda shown=shown: series % shown in exposition(train.playground.manager))


def test_a_job_of_kubeflow_trainer_has_the_report_as_upstream_writes_it(kubeflow: KubeflowCluster) -> None:
    trial = kubeflow.submit(trainer={"numNodes": 2})
    pod = trial.await_pods(2)[0]
    reporter = Reporter.of(kubeflow.api, pod)
    report = {"progressPercentage": 7, "metrics": [{"name": "loss", "value": "0.5"}]}
    time = {"lastUpdatedTime": "2026-01-31T12:00:00Z"}
    response = until(lambda: reporter.report(**report, **time), lambda response: response.code == 200)
    assert response.body == {"trainerStatus": report | time}
    assert trial.status()["trainerStatus"] == report | time
    kind = "TrainJob.trainer.kubeflow.org"
    series = f'{{job="{trial.name}",kind="{kind}",metric="loss",namespace="{kubeflow.namespace}"}} 0.5'
    eventually(lambda: series in exposition(kubeflow.manager))


def test_the_training_pods_of_both_groups_have_what_programs_need(train: Trial, kubeflow: KubeflowCluster) -> None:
    train.train(1)
    other = kubeflow.submit(trainer={"numNodes": 1})
    for name, pod in ((train.name, train.await_running("node-0")), (other.name, other.await_pods(1)[0])):
        env = env_of(pod)
        path = f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{kubeflow.namespace}/trainjobs/{name}/status"
        assert env[URL_VARIABLE].endswith(path)
        folder = env[CA_VARIABLE].rpartition("/")[0]
        (mount,) = [each for each in pod["spec"]["containers"][0]["volumeMounts"] if each["mountPath"] == folder]
        assert mount["readOnly"] is True
        token, config_map = sources_of(pod)
        assert (token["expirationSeconds"], token["path"]) == (3600, "token")
        assert token["audience"] == path.removeprefix("/apis/")
        assert config_map["items"] == [{"key": "ca.crt", "path": "ca.crt"}]


def code_of(reporter: Reporter) -> int:
    """Returns the code of a report, also after other tests have sent bad tokens from the same address."""
    return until(lambda: reporter.report(progressPercentage=1).code, lambda code: code != 429)


@pytest.fixture
def reporter(train: Trial) -> Reporter:
    train.train(1)
    reporter = reporter_of(train)
    # Tests of refused tokens make this address wait until its next token is reviewed.
    eventually(lambda: reporter.send(b"{}").code == 200)
    return reporter


def test_a_report_without_a_token_is_refused(reporter: Reporter) -> None:
    response = replace(reporter, token="").report()
    assert (response.code, response.body["reason"]) == (401, "Unauthorized")


def test_a_token_of_another_job_is_refused(reporter: Reporter, playground: Playground) -> None:
    other = playground.new_train_trial()
    other.train(1)
    foreign = reporter_of(other)
    assert code_of(replace(reporter, token=foreign.token)) == 403
    eventually(lambda: foreign.report(progressPercentage=1).code == 200)
    other.clear()


def test_a_token_for_the_api_server_is_refused(reporter: Reporter, train: Trial) -> None:
    token = token_of(train.jobs.api, train.await_running("node-0"), "https://kubernetes.default.svc")
    assert code_of(replace(reporter, token=token)) == 403


def test_a_token_of_a_pod_that_only_looks_like_one_of_the_job_is_refused(reporter: Reporter, train: Trial) -> None:
    real = train.await_running("node-0")
    # With the Job's UID, which is its selector, the Job controller would adopt the pod until it removes it.
    labels = {key: value for key, value in real["metadata"]["labels"].items() if "controller-uid" not in key}
    assert len(labels) < len(real["metadata"]["labels"])
    meta = {"name": f"{train.name}-forged", "labels": labels}
    spec = {"containers": [{"name": "node", "image": "i"}], "nodeName": real["spec"]["nodeName"]}
    forged = train.jobs.api.create(f"/api/v1/namespaces/{train.namespace}/pods", {"metadata": meta, "spec": spec})
    token = token_of(train.jobs.api, forged, sources_of(real)[0]["audience"])
    code = code_of(replace(reporter, token=token))
    train.remove_pod(forged)
    assert code == 403


def test_a_token_of_a_pod_in_another_namespace_is_refused(reporter: Reporter, train: Trial) -> None:
    api, elsewhere = train.jobs.api, new_namespace(train.jobs.api, "elsewhere")
    eventually(lambda: api.find(f"/api/v1/namespaces/{elsewhere}/serviceaccounts/default"))
    audience = sources_of(train.await_running("node-0"))[0]["audience"]
    body = {"metadata": {"name": "mine"}, "spec": {"containers": [{"name": "node", "image": "i"}]}}
    pod = api.create(f"/api/v1/namespaces/{elsewhere}/pods", body)
    assert code_of(replace(reporter, token=token_of(api, pod, audience))) == 403
    api.delete(f"/api/v1/namespaces/{elsewhere}")


def test_a_token_of_a_deleted_pod_is_refused_although_it_was_known(reporter: Reporter, train: Trial) -> None:
    pod = train.await_running("node-0")
    assert reporter.report(progressPercentage=1).code == 200
    train.remove_pod(pod)
    # Its token is valid for some time, but the controller sees that the pod is gone.
    train.await_pod("node-0", pod["metadata"]["name"])
    eventually(lambda: reporter.report(progressPercentage=2).code == 403)


def test_an_address_whose_tokens_are_refused_waits_and_known_tokens_do_not(reporter: Reporter) -> None:
    assert reporter.report(progressPercentage=1).code == 200
    codes = {replace(reporter, token=f"x.y.{each}").report(progressPercentage=1).code for each in range(20)}
    assert codes == {403, 429}
    eventually(lambda: reporter.report(progressPercentage=2).code == 200)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"{", "the body is not a report"),
        (b'{"trainerStatus": {"progressPercentage": 101}}', "trainerStatus.progressPercentage: must be from 0"),
        (b'{"trainerStatus": {"lastUpdatedTime": "yesterday"}}', "lastUpdatedTime: must be a time"),
        (b"[" * 10_000 + b"]" * 10_000, "the body is not a report"),
    ],
)
def test_a_body_that_is_no_report_is_refused_by_the_name_of_its_field(
    reporter: Reporter, body: bytes, field: str
) -> None:
    response = reporter.send(body)
    assert (response.code, response.body["reason"]) == (422, "Invalid")
    assert field in response.message


def test_a_body_above_the_limit_is_refused(reporter: Reporter) -> None:
    assert reporter.send(b" " * (64 * 1024 + 1)).code == 413


def test_a_job_that_reports_all_the_time_has_to_wait(reporter: Reporter, train: Trial) -> None:
    codes = [reporter.report(progressPercentage=each).code for each in range(30)]
    assert codes[0] == 200
    assert set(codes) == {200, 429}
    # It is taken again when the job reports at the rate of the protocol.
    eventually(lambda: reporter.report(progressPercentage=99).code == 200)
    train.await_status(lambda status: status.get("progress") == "99 %")


def test_other_paths_and_methods_are_refused(reporter: Reporter) -> None:
    assert reporter.send(b"{}", "PUT").code == 405
    root = reporter.url.partition("/apis/")[0]
    for path in ("/", "/metrics", "/apis/trainer.kubeflow.org/v1alpha1/namespaces/a/trainjobs/../status"):
        assert replace(reporter, url=root + path).report().code == 404
