"""What the client makes of names, manifests and refusals, without a cluster."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from helpers.scripted import ScriptedRequester
from tfjob_controller.client import Client, ClientError, tfjob, trainjob
from tfjob_controller.client.errors import JobEndedError, error_text
from tfjob_controller.client.job import Job
from tfjob_controller.kube.errors import ApiError

MISSING = ApiError(404, "NotFound", 'tfjobs.kubeflow.org "a" not found')
# To a request for a kind, or for an API, that the cluster does not have.
UNKNOWN = ApiError(404, "", "404 page not found")
EMPTY = b'{"metadata": {}, "items": []}'


def over(*answers: Any) -> Client:
    return Client.over(ScriptedRequester(*answers), "ns", "there")


def test_what_is_imported_first_is_light() -> None:
    code = "from tfjob_controller.client import Client, tfjob, trainjob, JobFailedError; import sys; "
    code += "print({'kubernetes', 'rich', 'urllib3', 'structlog', 'yaml', 'cryptography'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout == "set()\n"


def test_every_public_name_is_there() -> None:
    import tfjob_controller.client as package

    assert {name: getattr(package, name) for name in package.__all__}
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = package.Nothing


def test_a_kubeconfig_that_cannot_be_used_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ClientError, match=r"no kubeconfig at .*: name one"):
        Client(str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        pytest.param(lambda client: client.job("a", "job"), "unknown kind 'job': use one of", id="kind"),
        pytest.param(lambda client: client.submit({}), "not a job: apiVersion and kind", id="no job"),
        pytest.param(lambda client: client.submit(tfjob("", image="i")), "metadata.name: is required", id="no name"),
        pytest.param(
            lambda client: client.submit(tfjob("a", image="i", ttlSecondsAfterFinished=-1)),
            "spec.ttlSecondsAfterFinished: must be from 0",
            id="tfjob",
        ),
        pytest.param(
            lambda client: client.submit(trainjob("a", image="i", nodes=0)), "spec.numNodes: must be ", id="trainjob"
        ),
        pytest.param(
            lambda client: client.submit(tfjob("a", image="i", workers=two)), "replicas: expected int", id="type"
        ),
        pytest.param(
            lambda client: client.submit(tfjob("a", image="i", backoffLimit=object())),
            "JSON cannot represent",
            id="json",
        ),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_sent(call: Any, words: str) -> None:
    with pytest.raises(ClientError, match=words):
        call(over())


two: Any = "two"


@pytest.mark.parametrize(
    ("manifest", "number", "problem"),
    [
        (tfjob("a", image="i", workers=1), 1001, "spec.workerReplicas: must be from 0 to 1000, is 1001"),
        (tfjob("a", image="i", workers=1), -1, "spec.workerReplicas: must be from 0 to 1000, is -1"),
        (trainjob("a", image="i", nodes=1), 5001, "spec.numNodes: must be from 1 to 5000, is 5001"),
    ],
)
def test_a_size_beyond_the_limit_of_its_field_is_refused_before_it_is_sent(
    manifest: dict[str, Any], number: int, problem: str
) -> None:
    job = over(msgspec.json.encode(manifest)).job("a", manifest["kind"].lower())
    with pytest.raises(ClientError, match=problem):
        job.scale(number)


def test_a_job_that_is_not_there_names_what_shows_those_that_are() -> None:
    words = 'no TFJob and no TrainJob with the name "a" found in namespace "ns": `kubectl tfjob list -A` shows'
    with pytest.raises(ClientError, match=words):
        over(UNKNOWN, MISSING, MISSING).job("a")
    with pytest.raises(ClientError, match=r'tfjobs\.kubeflow\.org "a" not found: `kubectl tfjob list -A` shows'):
        over(MISSING, UNKNOWN).job("a", "tfjob")


def test_a_cluster_without_the_kinds_is_distinguished_from_one_without_the_job() -> None:
    with pytest.raises(ClientError, match="the cluster lacks this kind: `kubectl apply"):
        over(UNKNOWN, UNKNOWN, UNKNOWN).job("a")
    with pytest.raises(ClientError, match=r'tfjobs\.kubeflow\.org "a" not found'):
        over(UNKNOWN, UNKNOWN, MISSING).job("a")
    with pytest.raises(ClientError, match=r"the cluster knows no PyTorchJobs: see docs/kubeflow-v1\.md"):
        over(UNKNOWN).job("a", "pytorchjob")


def test_a_login_page_instead_of_a_job_is_reported() -> None:
    with pytest.raises(ClientError, match="is not a job: check for a proxy in between"):
        over(b"{}", b"{}", b"<html>").submit(tfjob("a", image="i"))


def test_a_cluster_that_knows_one_kind_alone_has_its_jobs() -> None:
    assert len(over(UNKNOWN, EMPTY, UNKNOWN).jobs()) == 0
    with pytest.raises(ClientError, match="lacks this kind: `kubectl apply"):
        over(UNKNOWN, UNKNOWN).jobs(kind="tfjob")


@pytest.mark.parametrize(("phase", "how"), [("Done", "succeeded"), ("Failed", "failed")])
@pytest.mark.parametrize(
    ("change", "what"),
    [
        (Job.suspend, "suspended"),
        (Job.resume, "resumed"),
        (lambda job: job.scale(2), "scaled"),
    ],
)
@pytest.mark.parametrize("made", [tfjob("a", image="i", workers=1), trainjob("a", image="i", nodes=1)])
def test_a_job_that_has_ended_cannot_be_changed(
    phase: str, how: str, change: Callable[[Job], object], what: str, made: dict[str, Any]
) -> None:
    manifest = {**made, "metadata": {"name": "a", "namespace": "ns", "uid": "u"}}
    ended = msgspec.json.encode({**manifest, "status": {"phase": phase}})
    job = over(msgspec.json.encode(manifest), ended).job("a", made["kind"].lower())
    with pytest.raises(JobEndedError, match=f"^ns/a has {how}: a job that has ended cannot be {what}$"):
        change(job)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        pytest.param(
            ApiError(0, "Timeout", "no answer"), "no answer: check that the API server of there runs", id="away"
        ),
        pytest.param(ApiError(0, "ProxyNotConnected", "refused"), "refused: check that the proxy runs and", id="proxy"),
        pytest.param(ApiError(0, "Closed", "the transport is closed"), "closed: make a new Client", id="closed"),
        pytest.param(ApiError(0, "", "no answer", outcome_unknown=True), "may have been processed", id="unknown"),
        pytest.param(
            ApiError(401, "", "who?"), "there rejected your credentials, which may have expired: log in again", id="401"
        ),
        pytest.param(ApiError(403, "", 'User "u" cannot list resource "tfjobs"'), "role `view`", id="reads"),
        pytest.param(ApiError(403, "", 'User "u" cannot patch resource "tfjobs"'), "role `edit`", id="writes"),
        pytest.param(ApiError(422, "", "spec.x: Invalid value"), "spec.x: Invalid value", id="invalid"),
    ],
)
def test_a_refusal_is_reported_with_its_remedy(error: ApiError, words: str) -> None:
    assert words in error_text(error, "there")


OF_CLUSTER = 'User "u" cannot {} resource "{}" in API group "g" at the cluster scope'


@pytest.mark.parametrize(
    ("verb", "resource", "remedy"),
    [
        ("list", "gangs", "choose one namespace, or ask a cluster administrator to bind the ClusterRole `view` to you"),
        (
            "deletecollection",
            "tfjobs",
            "choose one namespace, or ask a cluster administrator to bind the ClusterRole `e",
        ),
        ("get", "clustertrainingruntimes", "ask a cluster administrator to bind the ClusterRole `view` to you"),
        ("patch", "clustertrainingruntimes", "ask a cluster administrator for this right"),
        ("list", "nodes", "ask a cluster administrator to bind the ClusterRole `tfjob-cluster-viewer` to you"),
        ("impersonate", "users", "ask an administrator for the right to act as that user"),
    ],
)
def test_a_request_beyond_one_namespace_is_a_matter_of_cluster_roles(verb: str, resource: str, remedy: str) -> None:
    error = ApiError(403, "Forbidden", f"{resource} is forbidden: {OF_CLUSTER.format(verb, resource)}")
    words = error_text(error, "there")
    assert f"at the cluster scope: {remedy}" in words
    assert "that namespace" not in words


def test_a_namespace_that_does_not_exist_is_no_missing_job() -> None:
    error = ApiError(404, "NotFound", 'namespaces "gone" not found')
    assert error_text(error, "there").endswith("not found: create it, or choose another namespace")


def test_a_job_without_a_namespace_is_refused_before_it_is_sent() -> None:
    with pytest.raises(ClientError, match=r"metadata\.namespace: is required: give the job a namespace"):
        Client.over(ScriptedRequester(), "").submit(trainjob("a", image="i"))


def test_a_quota_is_no_matter_of_roles() -> None:
    error = ApiError(403, "Forbidden", 'tfjobs "a" is forbidden: exceeded quota: q')
    assert error_text(error, "there") == error.message


def test_metrics_are_numbers_of_any_form() -> None:
    listed = [{"name": name, "value": value, "logTime": ""} for name, value in (("loss", "0.5"), ("worst", "+Inf"))]
    metadata = {"name": "a", "namespace": "ns", "uid": "u"}
    found = {**trainjob("a", image="i", nodes=1), "metadata": metadata, "status": {"metrics": listed}}
    job = over(msgspec.json.encode(found)).job("a", "trainjob")
    assert job.metrics == {"loss": 0.5, "worst": float("inf")}
