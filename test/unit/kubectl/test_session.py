"""The rules of session.py: which requests of the plugin are sent again."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from helpers.barekubeconfig import kubeconfig_for
from helpers.httpserver import Answer, HttpServer, status_answer
from helpers.jobserver import NAMESPACE, a_tfjob, plugin_of, store
from helpers.memoryapi import MemoryApi
from tfjob_controller.api.gang import GANGS
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kubectl import cli
from tfjob_controller.kubectl.arguments import parse
from tfjob_controller.kubectl.session import Session

THROTTLED = status_answer(429, "TooManyRequests", Retry_After="0")


@contextmanager
def session_with(folder: Path, *answers: Answer) -> Iterator[tuple[Session, HttpServer]]:
    in_turn = iter(answers)
    with HttpServer(lambda _: next(in_turn)) as server:
        session = Session(Namespace(kubeconfig=str(kubeconfig_for(server.url, folder)), context=""))
        yield session, server
        session.close()


def test_a_request_that_the_server_puts_off_is_sent_again_as_after_the_crds_were_applied(tmp_path: Path) -> None:
    with session_with(tmp_path, THROTTLED, THROTTLED, Answer(body=b"{}")) as (session, server):
        assert session.requester.request("GET", "/x") == b"{}"
        assert len(server.requests) == 3


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(Answer(500), id="any other failure"),
        pytest.param(status_answer(429, "TooManyRequests"), id="a refusal, such as that of an eviction"),
        pytest.param(
            status_answer(429, "TooManyRequests", Retry_After="60"), id="for longer than the request may take"
        ),
    ],
)
def test_nothing_else_is_sent_again(answer: Answer, tmp_path: Path) -> None:
    with session_with(tmp_path, answer, Answer(body=b"{}")) as (session, server):
        with pytest.raises(ApiError):
            session.requester.request("GET", "/x")
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("text", "aimed"),
    [
        ("`kubectl tfjob delete a -n b` deletes it", "`kubectl tfjob delete --context='my cluster' a -n b` deletes it"),
        ("look: kubectl get pods -A", "look: kubectl get --context='my cluster' pods -A"),
        ("kubectl tfjob: no such job", "kubectl tfjob: no such job"),
        ("kubectl, and its plugin", "kubectl, and its plugin"),
    ],
)
def test_commands_in_messages_act_on_the_cluster_of_the_command_line(text: str, aimed: str) -> None:
    """One of them deletes a job: pasted without the context, it would act on another cluster."""
    assert Session(Namespace(kubeconfig="", context="my cluster")).aimed(text) == aimed
    flags = ["--kubeconfig=/k", "--context=c", "-s", "https://a", "--as=b", "--as-group=d", "--as-group=e f"]
    given = parse([*flags, "list", "--token=s3cret", "--request-timeout=5s", "-v", "--insecure-skip-tls-verify"])
    assert Session(given).aimed("kubectl get pods") == (
        "kubectl get --kubeconfig=/k --context=c --server=https://a --insecure-skip-tls-verify --as=b "
        "--as-group=d --as-group='e f' pods"
    )
    assert Session(Namespace(kubeconfig="", context="")).aimed(text) == text


@pytest.mark.parametrize(
    ("flags", "remedy"),
    [
        (["--token=s3cret"], "the API server of context 'x' of kubeconfig {} refused the token that --token gives"),
        ([], "context 'x' of kubeconfig {} rejected your credentials, which may have expired: log in again"),
    ],
)
def test_a_refused_token_is_distinguished_from_refused_credentials(
    flags: list[str], remedy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with HttpServer(lambda _: status_answer(401, "Unauthorized", "Unauthorized")) as server:
        file = kubeconfig_for(server.url, tmp_path)
        assert cli.main(["list", "--kubeconfig", str(file), *flags]) == 1
    assert capsys.readouterr().err == f"kubectl tfjob: Unauthorized: {remedy.format(file)}\n"


@pytest.mark.parametrize("line", ["describe train", "explain train", "queue"])
def test_programs_are_looked_up_in_the_namespace_of_their_installation(
    line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    api = MemoryApi()
    store(api, a_tfjob("train", "Running"))
    api.put(GANGS.path(NAMESPACE), {"metadata": {"name": "a", "namespace": NAMESPACE}, "status": {"phase": "Waiting"}})
    with plugin_of(api, tmp_path, capsys) as plugin:
        code, _, error = plugin(*line.split(), "--controller-namespace=ours")
        paths = [request.path for request in api.requests("GET")]
    assert code == 0
    assert any(path.startswith("/apis/coordination.k8s.io/v1/namespaces/ours/leases/") for path in paths)
    assert not any("tfjob-system" in path for path in paths)
    if line == "queue":
        assert error.endswith(
            f"tfjob describe --kubeconfig={tmp_path}/kubeconfig NAME -n team --controller-namespace=ours\n"
        )
