"""The command line of the plugin, and what it does when the cluster is not there or says no."""

from __future__ import annotations

import ast
import contextlib
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from helpers.barekubeconfig import kubeconfig_with_token
from helpers.httpserver import Answer, HttpServer, Request, status_answer
from tfjob_controller.kubectl import cli
from tfjob_controller.util.exitcodes import EXIT_BROKEN_PIPE

TABLE = b"""{"kind": "Table", "metadata": {"continue": "%s"},
 "columnDefinitions": [{"name": "Name"}, {"name": "Reason", "priority": 1}, {"name": "Age"}],
 "rows": [{"cells": ["job-%s", "why", null], "object": {"metadata": {"namespace": "ns"}}}]}"""


def pages(request: Request) -> Answer:
    """A table in two pages, or an empty list."""
    if "Table" not in request.headers["accept"]:
        return Answer(body=b'{"metadata": {}, "items": []}')
    return Answer(body=TABLE % ((b"", b"2") if "continue" in request.query else (b"more", b"1")))


def test_version_and_help_need_no_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert cli.main([]) == 0
    shown = capsys.readouterr().out
    assert "tfjob 0." in shown
    assert {"list", "describe", "logs"} <= set(shown.split())


HEAVY = {"kubernetes", "google", "requests", "cryptography", "structlog", "rich", "msgspec", "urllib3", "yaml"}


@pytest.mark.parametrize(
    ("arguments", "allowed"),
    [
        pytest.param([], set(), id="help"),
        pytest.param(["__complete", "sus"], set(), id="complete a command"),
        pytest.param(["submit", "x", "--image", "i", "--dry-run", "client"], {"msgspec", "yaml"}, id="manifest"),
        pytest.param(["list", "-o", "json"], {"msgspec", "yaml", "urllib3"}, id="JSON"),
    ],
)
def test_a_command_loads_nothing_heavy_that_it_does_not_need(
    arguments: list[str], allowed: set[str], tmp_path: Path
) -> None:
    """Which is why it answers at once. Least of all the Kubernetes client: that alone takes longer than the rest."""
    with HttpServer(pages) as server:
        code = f"import sys; from tfjob_controller.kubectl import cli; cli.main({arguments!r}); "
        code += f"print(sorted({HEAVY!r} & set(sys.modules)))"
        environment = dict(os.environ, KUBECONFIG=kubeconfig_with_token(server.url, tmp_path))
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True, env=environment)
    assert set(ast.literal_eval(done.stdout.splitlines()[-1])) <= allowed


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(["walk"], "there is no command 'walk' (see `kubectl tfjob --help`)", id="unknown command"),
        pytest.param(["scael", "a"], "there is no command 'scael': did you mean `scale`?", id="misspelt command"),
        pytest.param(["--foo"], "unknown flag: --foo (see `kubectl tfjob --help`)", id="unknown flag"),
        pytest.param(["logs", "j", "--tail", "-1"], "--tail", id="negative count"),
        pytest.param(["list", "--kubeconfig=/nowhere/kubeconfig"], "/nowhere/kubeconfig", id="no such kubeconfig"),
    ],
)
def test_what_cannot_be_used_ends_with_one_line_and_code_2(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["list", "--foo=s3cret"], "unknown flag: --foo"),
        (["-n", "team", "list", "-A", "-x"], "unknown flag: -x"),
        (["describe", "train", "more"], "unexpected argument: more"),
    ],
)
def test_an_unknown_flag_shows_the_usage_of_its_command_and_where_its_help_is(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == 2
    command = "describe" if "describe" in arguments else "list"
    first, usage, *_, last = capsys.readouterr().err.splitlines()
    assert first == f"kubectl tfjob: {message}"
    assert usage.startswith(f"usage: kubectl tfjob {command} [-h] [-")
    assert last == f"See `kubectl tfjob {command} --help`."


@pytest.mark.parametrize(
    ("arguments", "begins"),
    [
        (["version"], "kubectl tfjob 0."),
        (["-n", "team", "version"], "kubectl tfjob 0."),
        (["help"], "usage: kubectl tfjob [-h]"),
        (["help", "wait"], "usage: kubectl tfjob wait [-h]"),
        (["-n", "team", "help", "wait"], "usage: kubectl tfjob wait [-h]"),
    ],
)
def test_help_and_version_are_commands_as_those_of_kubectl(
    arguments: list[str], begins: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with contextlib.suppress(SystemExit):
        assert cli.main(arguments) == 0
    assert capsys.readouterr().out.startswith(begins)


@pytest.mark.parametrize("arguments", [["train"], ["train", "1", "--replicas=1"]])
def test_scale_needs_one_number(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["scale", *arguments]) == 2
    assert "give one number: `kubectl tfjob scale JOB N`, or --replicas=N" in capsys.readouterr().err


def test_a_list_is_read_page_by_page_and_leaves_out_what_the_server_thinks_less_important(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with HttpServer(pages) as server:
        only = ["--kind", "tfjob", "--kubeconfig", kubeconfig_with_token(server.url, tmp_path)]
        assert cli.main(["list", *only]) == 0
        assert capsys.readouterr().out == "NAME   AGE\njob-1  -\njob-2  -\n"
        assert cli.main(["list", "-A", "-o", "wide", *only]) == 0
        assert capsys.readouterr().out.splitlines()[1].split() == ["ns", "job-1", "why", "-"]
    assert server.requests[0].path == "/apis/kubeflow.org/v1alpha1/namespaces/ns/tfjobs"
    assert server.requests[0].headers["user-agent"].startswith("kubectl-tfjob/")
    assert server.requests[2].path == "/apis/kubeflow.org/v1alpha1/tfjobs"


def test_a_selector_goes_to_the_server_with_every_list(tmp_path: Path) -> None:
    with HttpServer(pages) as server:
        for flags in (["-l", "team=a,!old"], ["--selector=team=a,!old", "-o", "json"]):
            assert (
                cli.main(
                    ["list", "--kind", "tfjob", "--kubeconfig", kubeconfig_with_token(server.url, tmp_path), *flags]
                )
                == 0
            )
    assert {each.query["labelSelector"] for each in server.requests} == {"team=a,!old"}


def test_a_watch_prints_a_table_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list", "-w", "-o", "json"]) == 2
    assert capsys.readouterr().err == "kubectl tfjob: --watch prints a table: leave out -o json\n"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        pytest.param(status_answer(403, "Forbidden", "you may not"), "you may not: ask for the role `view`", id="403"),
        pytest.param(status_answer(401, "Unauthorized"), "log in again", id="401"),
        pytest.param(
            Answer(404, b"404 page not found\n"), "/kubeconfig --server-side -k manifests/overlays/crds`", id="no CRD"
        ),
        pytest.param(Answer(200, b"<html>log in</html>"), "the server sent no table", id="a login page"),
    ],
)
def test_a_refusal_is_one_line_with_its_remedy_and_no_secret(
    answer: Answer, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with HttpServer(lambda request: answer) as server:
        assert cli.main(["list", "--kubeconfig", kubeconfig_with_token(server.url, tmp_path)]) == 1
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
    assert "s3cret" not in error


@pytest.mark.parametrize(
    "arguments",
    [
        ["list"],
        ["logs", "x"],
        ["wait", "x"],
        ["submit", "x", "--image", "i"],
    ],
    ids=" ".join,
)
def test_a_failing_or_unreachable_server_gets_one_request(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with HttpServer(lambda request: status_answer(500, "InternalError")) as server:
        assert cli.main([*arguments, "--kubeconfig", kubeconfig_with_token(server.url, tmp_path)]) == 1
    assert len(server.requests) == 1
    capsys.readouterr()
    # Now nobody listens there any more.
    assert cli.main([*arguments, "--kubeconfig", kubeconfig_with_token(server.url, tmp_path)]) == 1
    error = capsys.readouterr().err
    assert "cannot connect" in error
    assert "check that the API server of context 'x' of kubeconfig" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["list", "-v=9"],
        ["list", "--tokne", "t0ken"],
        ["--tokne", "t0ken", "list"],
        ["list", "--token=", "t0ken"],
        ["--token=", "t0ken", "list"],
        ["describe", "x", "-v"],
        ["submit", "x", "--image", "i", "-v"],
    ],
    ids=" ".join,
)
def test_a_token_of_the_command_line_is_sent_and_never_printed(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with HttpServer(lambda request: status_answer(401, "Unauthorized")) as server:
        path = kubeconfig_with_token(server.url, tmp_path)
        assert cli.main(["--token", "t0ken", "--kubeconfig", path, *arguments]) in (1, 2)
    shown = capsys.readouterr()
    assert "t0ken" not in shown.out + shown.err
    assert {request.headers["authorization"] for request in server.requests} <= {"Bearer t0ken"}


def test_verbose_commands_name_each_request_on_standard_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with HttpServer(pages) as server:
        flags = ["--kind", "tfjob", "--kubeconfig", kubeconfig_with_token(server.url, tmp_path)]
        assert cli.main(["list", "-v", *flags]) == 0
        verbose = capsys.readouterr()
        assert cli.main(["-v=5", "list", *flags]) == 0
        assert capsys.readouterr() == (verbose.out, "")
    first, second = verbose.err.splitlines()
    path = "/apis/kubeflow.org/v1alpha1/namespaces/ns/tfjobs?limit=500"
    assert re.fullmatch(re.escape(f"GET {server.url}{path} 200 in ") + r"\d+ ms", first)
    assert f"{path}&continue=more 200 in " in second


def test_a_request_ends_after_the_time_of_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    may_end = threading.Event()
    with HttpServer(lambda request: Answer(size=9, hold=may_end)) as server:
        path = kubeconfig_with_token(server.url, tmp_path)
        assert cli.main(["list", "--request-timeout=200ms", "--kubeconfig", path]) == 1
        may_end.set()
    assert "no answer in time" in capsys.readouterr().err


def test_a_reader_that_has_seen_enough_is_no_error_worth_a_word(tmp_path: Path) -> None:
    with HttpServer(pages) as server:
        command = [sys.executable, "-c", "from tfjob_controller.kubectl.cli import main; raise SystemExit(main())"]
        command += ["list", "--kubeconfig", kubeconfig_with_token(server.url, tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
            assert running.stdout is not None
            assert running.stderr is not None
            running.stdout.close()
            assert running.stderr.read() == b""
            assert running.wait(20) == EXIT_BROKEN_PIPE
