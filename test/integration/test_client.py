"""The Python client against a real API server, with a real controller's jobs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers.cluster import Cluster, set_pod_running, write_kubeconfig
from helpers.logkubelet import Kubelet
from helpers.playground import Playground, Trial, ends
from helpers.poll import eventually
from helpers.rights import account_with
from helpers.trainjobs import await_cached, cluster_runtime
from helpers.trainjobs import ends as train_ends
from tfjob_controller.client import (
    AmbiguousNameError,
    Client,
    ClientError,
    Job,
    JobDeletedError,
    JobFailedError,
    WaitTimeoutError,
    tfjob,
    trainjob,
)

pytestmark = pytest.mark.cluster

# Only ends what hangs.
PATIENCE_SECONDS = 600.0
KINDS = ("tfjob", "trainjob")
USER_ROLES = Path(__file__).parents[2] / "manifests/base/rbac/user-roles.yaml"


@pytest.fixture
def client(control_plane: Cluster, playground: Playground) -> Iterator[Client]:
    with Client(str(control_plane.kubeconfig), namespace=playground.jobs.namespace) as client:
        yield client


@pytest.fixture(params=KINDS)
def either(request: pytest.FixtureRequest, playground: Playground) -> Iterator[Trial]:
    """A job of each kind."""
    trial = playground.new_trial() if request.param == "tfjob" else playground.new_train_trial()
    yield trial
    trial.clear()


def manifest_of(trial: Trial, **spec: Any) -> dict[str, Any]:
    """A master and a worker, or two nodes."""
    if trial.container:
        return tfjob(trial.name, image="localhost/trainer", command=["train"], workers=1, **spec)
    return trainjob(trial.name, image="localhost/trainer", command=["train"], nodes=2, **spec)


def is_over(trial: Trial, *codes: int) -> None:
    """All its replicas end, with those codes."""
    replicas = ("master-0", "worker-0") if trial.container else ("node-0", "node-1")
    for replica in replicas:
        how = ends if trial.container else train_ends
        trial.plays(replica, *(how(code, "no such file") for code in codes))


def test_a_job_is_submitted_awaited_and_deleted(client: Client, either: Trial) -> None:
    is_over(either, 0)
    job = client.submit(manifest_of(either))
    assert (job.name, job.namespace, job.phase) == (either.name, client.namespace, "")
    assert job.wait("Running", PATIENCE_SECONDS) is job
    assert job.wait(timeout_seconds=PATIENCE_SECONDS).phase == "Done"
    assert job.state in ("Succeeded", "SUCCESS")
    assert job.manifest["spec"] == either.get()["spec"]
    job.delete(wait=True, timeout_seconds=PATIENCE_SECONDS)
    with pytest.raises(JobDeletedError, match="was deleted"):
        job.wait(timeout_seconds=PATIENCE_SECONDS)
    with pytest.raises(ClientError, match=r"found in namespace .*: `client"):
        client.job(either.name)


def test_a_job_that_fails_ends_the_waiting_with_its_reason(client: Client, either: Trial) -> None:
    is_over(either, 1, 1)
    job = client.submit(manifest_of(either))
    with pytest.raises(JobFailedError, match=r"has failed: .*exit code 1") as caught:
        job.wait("Succeeded", PATIENCE_SECONDS)
    assert caught.value.reason == job.reason == either.status()["reason"]
    assert job.wait("Failed", PATIENCE_SECONDS) is job


def test_waiting_has_an_end_and_a_condition_may_be_a_function(client: Client, trial: Trial) -> None:
    job = client.submit(manifest_of(trial))
    with pytest.raises(WaitTimeoutError, match=r"did not reach Succeeded within 0\.5 s"):
        job.wait(timeout_seconds=0.5)
    job.wait(lambda seen: any(each.status == "True" for each in seen.conditions), PATIENCE_SECONDS)
    with pytest.raises(WaitTimeoutError, match=r"was not deleted within 0\.5 s"):
        # As no finalizer lets it go.
        hold(trial, client, job)


def test_a_client_that_is_closed_ends_what_waits(control_plane: Cluster, client: Client, trial: Trial) -> None:
    client.submit(manifest_of(trial))
    with Client(str(control_plane.kubeconfig), namespace=client.namespace) as other:
        job = other.job(trial.name)
        threading.Timer(0.5, other.close).start()
        with pytest.raises(ClientError, match="closed: make a new Client"):
            job.wait()


def hold(trial: Trial, client: Client, job: Job) -> None:
    trial.jobs.change({"metadata": {"finalizers": ["example.com/hold"]}}, trial.name)
    try:
        job.delete(wait=True, timeout_seconds=0.5)
    finally:
        trial.jobs.change({"metadata": {"finalizers": []}}, trial.name)


def test_jobs_of_both_kinds_are_listed_and_a_name_of_two_must_be_distinguished(client: Client, namespace: str) -> None:
    client.submit(tfjob("same", image="localhost/t", namespace=namespace))
    client.submit(trainjob("same", image="localhost/t", nodes=1, namespace=namespace))
    assert [(job.kind, job.name) for job in client.jobs(namespace)] == [("tfjob", "same"), ("trainjob", "same")]
    assert [job.kind for job in client.jobs(namespace, kind="TrainJob")] == ["trainjob"]
    with pytest.raises(AmbiguousNameError, match="tfjob and trainjob called same: specify the kind"):
        client.job("same", namespace=namespace)
    assert client.job("same", "tfjobs", namespace).kind == "tfjob"
    assert {("tfjob", namespace), ("trainjob", namespace)} <= {
        (job.kind, job.namespace) for job in client.jobs(all_namespaces=True)
    }
    assert len(client.jobs("no-such-namespace")) == 0


def test_a_handle_means_one_job_and_not_its_namesake(client: Client, namespace: str) -> None:
    first = client.submit(tfjob("same", image="localhost/t", workers=1, namespace=namespace))
    first.delete(wait=True, timeout_seconds=PATIENCE_SECONDS)
    second = client.submit(tfjob("same", image="localhost/t", workers=1, namespace=namespace))
    before = second.manifest["spec"]
    for call in (first.refresh, first.suspend, first.delete, first.wait, lambda: first.scale(7)):
        with pytest.raises(JobDeletedError, match="same was deleted"):
            call()
    assert second.refresh().manifest["spec"] == before


def test_what_the_server_refuses_in_a_manifest_is_reported(client: Client) -> None:
    with pytest.raises(ClientError, match=r'unknown field "spec\.cleanPodPolice"'):
        client.submit(tfjob("wrong", image="localhost/t", cleanPodPolice="All"))


def refusal(client: Client, manifest: dict[str, Any]) -> str:
    """What the client says of a job that only Kubernetes' own validation of its pods finds to be wrong."""
    with pytest.raises(ClientError) as refused:
        client.submit(manifest)
    assert manifest["metadata"]["name"] not in [job.name for job in client.jobs()]
    return str(refused.value)


def test_pods_that_kubernetes_would_refuse_are_reported_before_there_is_a_job(client: Client) -> None:
    more_than_the_limit = {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}
    job = tfjob("refused", image="localhost/t", workers=1, master=False, resources={"cpu": "1"})
    (container,) = job["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"]
    container["resources"] = more_than_the_limit
    assert refusal(client, job).startswith(
        "Kubernetes refuses the pods of worker: spec.containers[0].resources.requests: Invalid value"
    )
    train = trainjob("refused", image="localhost/t", nodes=1)
    train["spec"]["trainer"]["resourcesPerNode"] = more_than_the_limit
    assert refusal(client, train).startswith(
        "Kubernetes refuses the pods of node: spec.containers[0].resources.requests: Invalid value"
    )
    job = tfjob("refused", image="localhost/t", resources={"cpu": "4x"})
    assert "resources" in refusal(client, job)


# Logs


@pytest.fixture
def logged(client: Client, train: Trial, logging_node: Kubelet) -> Iterator[tuple[Job, dict[str, str]]]:
    """A TrainJob of two nodes that run where there are logs, and their pods."""
    template = {"spec": {"nodeName": logging_node.name, "containers": [{"name": "node"}]}}
    with cluster_runtime(train.jobs.api, templates={"node": template}) as runtime:
        await_cached(train, runtime)
        job = client.submit(manifest_of(train, runtime=runtime))
        pods = {replica: train.await_pod(replica)["metadata"]["name"] for replica in ("node-0", "node-1")}
        for pod in pods.values():
            set_pod_running(train.jobs.api, train.namespace, pod)
        yield job, pods


def test_the_role_view_reads_logs_also_where_it_may_not_read_the_runtime(
    logged: tuple[Job, dict[str, str]], viewer: Client
) -> None:
    job, pods = logged
    seen = viewer.job(job.name)
    assert {line.replica for line in seen.logs("all")} == set(pods)
    assert {row.replica for row in seen.describe().replicas} == set(pods)


def test_closing_followed_logs_leaves_no_thread(logged: tuple[Job, dict[str, str]], logging_node: Kubelet) -> None:
    job, _ = logged
    may_end = threading.Event()

    def endless() -> Iterator[bytes]:
        yield b"early\n"
        may_end.wait(60.0)

    logging_node.chunks = endless
    lines = job.logs("all", follow=True)
    try:
        assert next(lines).text == "early"
        lines.close()  # type: ignore[attr-defined]  # a generator is an iterator that can be closed
        eventually(lambda: not [each for each in threading.enumerate() if each.name.startswith("log-")])
    finally:
        may_end.set()


# Rights


@pytest.fixture(scope="module")
def viewer(
    control_plane: Cluster, playground: Playground, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Client]:
    """A client with the role `view` in the playground's namespace alone."""
    roles = {each["metadata"]["name"]: each["rules"] for each in yaml.safe_load_all(USER_ROLES.read_text("utf-8"))}
    api, namespace = control_plane.api, playground.jobs.namespace
    builtin = api.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/view")["rules"]
    with account_with(api, namespace, [*roles["tfjob-viewer"], *builtin]) as token:
        kubeconfig = write_kubeconfig(control_plane, token, tmp_path_factory.mktemp("viewer") / "kubeconfig")
        with Client(str(kubeconfig), namespace=namespace) as client:
            yield client


def test_reading_needs_only_the_role_view(client: Client, viewer: Client, trial: Trial) -> None:
    client.submit(manifest_of(trial)).wait("Running", PATIENCE_SECONDS)
    job = viewer.job(trial.name).wait("Running", PATIENCE_SECONDS)
    assert trial.name in [each.name for each in viewer.jobs()]
    assert len(job.describe().replicas) == 2
    assert job.events() is not None
    refused: list[Callable[[], object]] = [
        job.suspend,
        job.delete,
        lambda: job.scale(1),
        lambda: viewer.submit(manifest_of(trial)),
    ]
    for call in refused:
        with pytest.raises(ClientError, match="ask for the role `edit` in that namespace"):
            call()
    with pytest.raises(ClientError, match="choose one namespace, or ask a cluster administrator to bind"):
        viewer.jobs(all_namespaces=True)
