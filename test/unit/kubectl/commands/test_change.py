"""`suspend` and `resume` say what they have changed, and what there was nothing to change of."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.jobserver import a_tfjob, a_trainjob, plugin_of, store
from helpers.memoryapi import MemoryApi

SUSPENDED = {"suspend": True}


@pytest.fixture
def api() -> MemoryApi:
    api = MemoryApi()
    store(
        api,
        a_tfjob("runs", "Running"),
        a_tfjob("paused", "Creating", SUSPENDED),
        a_tfjob("failed", "Failed"),
        a_tfjob("done", "Done", SUSPENDED),
        a_trainjob("torch", "Running"),
        a_trainjob("broken", "Failed"),
    )
    return api


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        pytest.param("suspend runs", (0, "tfjob/runs suspended\n", ""), id="a job that runs"),
        pytest.param("suspend torch", (0, "trainjob/torch suspended\n", ""), id="a TrainJob that runs"),
        pytest.param("suspend paused", (0, "tfjob/paused is already suspended\n", ""), id="one that is suspended"),
        pytest.param("resume paused", (0, "tfjob/paused resumed\n", ""), id="resume"),
        pytest.param("resume runs", (0, "tfjob/runs is not suspended\n", ""), id="resume one that runs"),
        pytest.param("resume torch", (0, "trainjob/torch is not suspended\n", ""), id="resume a TrainJob that runs"),
    ],
)
def test_what_is_so_is_said(
    command: str, answer: tuple[int, str, str], api: MemoryApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with plugin_of(api, tmp_path, capsys) as plugin:
        assert plugin(*command.split()) == answer
    assert bool(api.written("PATCH")) is (" is " not in answer[1])


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("suspend failed", "team/failed has failed: a job that has ended cannot be suspended"),
        ("suspend done", "team/done has succeeded: a job that has ended cannot be suspended"),
        ("suspend broken", "team/broken has failed: a job that has ended cannot be suspended"),
        ("resume done", "team/done has succeeded: a job that has ended cannot be resumed"),
        ("scale done 3", "team/done has succeeded: a job that has ended cannot be scaled"),
        ("scale broken 3 --dry-run", "team/broken has failed: a job that has ended cannot be scaled"),
    ],
)
def test_a_job_that_has_ended_is_refused_and_not_changed(
    command: str, words: str, api: MemoryApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with plugin_of(api, tmp_path, capsys) as plugin:
        assert plugin(*command.split()) == (1, "", f"kubectl tfjob: {words}\n")
    assert not api.written("PATCH")


def test_of_several_jobs_the_others_are_changed(
    api: MemoryApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with plugin_of(api, tmp_path, capsys) as plugin:
        code, out, error = plugin("suspend", "failed", "runs", "paused", "torch")
        assert plugin("suspend", "runs", "nobody")[0] == 1
    assert (code, error.count("\n")) == (1, 1)
    assert out.splitlines() == ["tfjob/runs suspended", "tfjob/paused is already suspended", "trainjob/torch suspended"]
    assert [each.path.rpartition("/")[2] for each in api.written("PATCH")] == ["runs", "torch"]


@pytest.mark.parametrize(
    ("command", "out"),
    [
        ("suspend runs torch", "tfjob/runs suspended{0}\ntrainjob/torch suspended{0}\n"),
        ("resume paused", "tfjob/paused resumed{0}\n"),
        ("scale torch 2", "trainjob/torch scaled to 2 nodes{0}\n"),
        ("scale runs torch --replicas=2", "tfjob/runs scaled to 2 workers{0}\ntrainjob/torch scaled to 2 nodes{0}\n"),
        ("delete runs --wait", "tfjob/runs deleted{0}\n"),
    ],
)
def test_a_dry_run_says_what_would_be_changed_and_changes_nothing(
    command: str, out: str, api: MemoryApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, *words = command.split()
    with plugin_of(api, tmp_path, capsys) as plugin:
        assert plugin(name, "--dry-run", *words) == (0, out.format(" (dry run)"), "")
        assert not api.written("PATCH") + api.written("DELETE")
        if "scale runs" not in command:  # the API server in memory has no scale subresource
            assert plugin(name, *words, "--dry-run=server") == (0, out.format(" (server dry run)"), "")
            assert {request.query.get("dryRun") for request in api.written("PATCH")} <= {"All"}
            # Of a request with a body, the API server reads options from the body alone.
            assert all((request.body or {})["dryRun"] == ["All"] for request in api.written("DELETE"))


def test_all_jobs_are_changed_with_a_line_for_each_and_those_that_have_ended_are_named(
    api: MemoryApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with plugin_of(api, tmp_path, capsys) as plugin:
        code, out, error = plugin("suspend", "--all")
        assert plugin("delete", "runs", "--all")[0] == 2
        assert plugin("scale", "--all", "-1")[0] == 1
    assert code == 1
    assert out.splitlines() == ["tfjob/paused is already suspended", "tfjob/runs suspended", "trainjob/torch suspended"]
    assert [line.split()[2] for line in error.splitlines()] == ["team/broken", "team/done", "team/failed"]
    assert not api.written("DELETE")


def test_all_jobs_are_deleted_before_one_is_waited_for(
    api: MemoryApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with plugin_of(api, tmp_path, capsys) as plugin:
        assert plugin("delete", "runs", "torch", "--wait") == (0, "tfjob/runs deleted\ntrainjob/torch deleted\n", "")
    sent = [(request.method, request.query) for request in api.requests()]
    last = max(index for index, (method, _) in enumerate(sent) if method == "DELETE")
    watches = [index for index, (_, query) in enumerate(sent) if query.get("fieldSelector")]
    assert watches
    assert last < min(watches)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("scale runs 12345678901", "must be a whole number, not '12345678901'"),
        ("scale tfjob/runs tfjob/4", "give one number: `kubectl tfjob scale JOB N`, or --replicas=N"),
    ],
)
def test_what_is_no_number_of_replicas_is_one_line_and_code_2(
    command: str, words: str, api: MemoryApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with plugin_of(api, tmp_path, capsys) as plugin:
        assert plugin(*command.split()) == (2, "", f"kubectl tfjob: {words}\n")
    assert not api.requests("PATCH")


def test_a_dry_run_checks_the_number_and_one_that_is_none_is_a_change(
    api: MemoryApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with plugin_of(api, tmp_path, capsys) as plugin:
        code, out, error = plugin("scale", "runs", "torch", "--replicas=5000", "--dry-run")
        assert plugin("suspend", "torch", "--dry-run=none") == (0, "trainjob/torch suspended\n", "")
    assert (code, out) == (1, "trainjob/torch scaled to 5000 nodes (dry run)\n")
    assert error.startswith("kubectl tfjob: tfjob/runs: spec.workerReplicas: must be")


@pytest.mark.parametrize("number", ["-1", "--replicas=-1"])
def test_a_number_that_no_job_can_have_names_the_field_and_its_range(
    number: str, api: MemoryApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with plugin_of(api, tmp_path, capsys) as plugin:
        code, out, error = plugin("scale", "runs", "torch", number)
    assert (code, out) == (1, "")
    assert error.splitlines() == [
        "kubectl tfjob: tfjob/runs: spec.workerReplicas: must be from 0 to 1000, is -1",
        "kubectl tfjob: trainjob/torch: spec.numNodes: must be from 1 to 5000, is -1",
    ]
    assert not api.written("PATCH")


@pytest.mark.parametrize("command", ["scale -l team=vision --replicas=2", "wait -l team=vision"])
def test_a_selector_of_nothing_is_no_success(
    command: str, api: MemoryApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with plugin_of(api, tmp_path, capsys) as plugin:
        code, out, error = plugin(*command.split())
    assert (code, out) == (1, "")
    assert error.startswith("No jobs")


def test_jobs_after_one_that_a_policy_refuses_are_changed(
    api: MemoryApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    api.fail(403, "Forbidden", "ValidatingAdmissionPolicy 'p' denied request: not today", method="PATCH", part="runs")
    with plugin_of(api, tmp_path, capsys) as plugin:
        code, out, error = plugin("suspend", "runs", "torch")
    assert (code, out) == (1, "trainjob/torch suspended\n")
    assert "not today" in error


def test_a_right_that_is_missing_is_reported_once(
    api: MemoryApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (
        'tfjobs.kubeflow.org "runs" is forbidden: User "u" cannot patch resource "tfjobs" in API group "kubeflow.org"'
    )
    api.fail(403, "Forbidden", words, method="PATCH", times=2)
    with plugin_of(api, tmp_path, capsys) as plugin:
        code, out, error = plugin("suspend", "runs", "torch")
    assert (code, out, error.count("\n")) == (1, "", 1)
