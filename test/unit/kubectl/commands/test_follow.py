"""What may be waited for on the command line, and what is said when the time is over."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from helpers.jobserver import a_tfjob, a_trainjob, plugin_of, store
from helpers.memoryapi import MemoryApi
from tfjob_controller.client.waitconditions import ConditionHasStatus
from tfjob_controller.kubectl.arguments import parse
from tfjob_controller.kubectl.command import EXIT_TIMEOUT
from tfjob_controller.kubectl.commands.follow import line_prefixes
from tfjob_controller.util.commandline import UsageError


@pytest.mark.parametrize(
    ("text", "until"),
    [
        ("succeeded", "Succeeded"),
        ("RUNNING", "Running"),
        ("condition=Suspended", ConditionHasStatus("Suspended", "True")),
        ("condition=mine=false", ConditionHasStatus("mine", "False")),
    ],
)
def test_the_names_are_those_of_python_in_any_case(text: str, until: object) -> None:
    assert parse(["wait", "train", "--for", text]).until == until


@pytest.mark.parametrize("text", ["runing", "condition=", "condition=Running=maybe"])
def test_a_name_that_nobody_knows_is_refused_with_those_that_are_known(text: str) -> None:
    with pytest.raises(UsageError, match=r"succeeded, running, .*deleted or condition=NAME"):
        parse(["wait", "train", "--for", text])


def test_a_time_that_is_over_is_one_line_that_says_where_the_job_is_and_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    api = MemoryApi()
    store(api, a_tfjob("train", "Running", reason="worker-1 restarts"), a_trainjob("new"))
    cluster = f"--kubeconfig={tmp_path}/kubeconfig"
    with plugin_of(api, tmp_path, capsys) as plugin:
        assert plugin("wait", "train", "--timeout", "0") == (
            EXIT_TIMEOUT,
            "",
            "kubectl tfjob: timed out after 0s waiting for Succeeded: tfjob/train is Running (worker-1 restarts). The "
            f"job stays: `kubectl tfjob wait {cluster} tfjob/train -n team` waits again, "
            f"`kubectl tfjob delete {cluster} tfjob/train -n team` deletes it\n",
        )
        words = (
            "waiting for condition Suspended=False: trainjob/new is not processed by a controller yet. The job stays"
        )
        assert words in plugin("wait", "new", "--for", "condition=Suspended=False", "--timeout", "0")[2]


@pytest.mark.parametrize("until", ["delete", "ended", "condition=Suspended=False"])
def test_the_command_that_waits_again_waits_for_the_same(
    until: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    api = MemoryApi()
    store(api, a_tfjob("train", "Running"))
    with plugin_of(api, tmp_path, capsys) as plugin:
        _, _, error = plugin("wait", "train", "--for", until, "--timeout", "0")
    again = shlex.split(error.partition("The job stays: `kubectl tfjob ")[2].partition("`")[0])
    assert parse(again).until == parse(["wait", "train", "--for", until]).until
    assert f"--for={until}" in again


def test_a_condition_that_is_already_true_is_reported_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    api = MemoryApi()
    store(api, a_tfjob("train", "Done"))
    with plugin_of(api, tmp_path, capsys) as plugin:
        for until in ("Succeeded", "Running", "Ended"):
            assert plugin("wait", "train", "--for", until, "--timeout", "0") == (0, "tfjob/train: Done\n", "")
        assert plugin("wait", "train", "--for", "failed", "--timeout", "0")[0] == 1


def test_several_jobs_are_awaited_and_a_failure_counts_more_than_a_timeout(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    api = MemoryApi()
    store(api, a_tfjob("done", "Done"), a_tfjob("slow", "Running"), a_tfjob("broken", "Failed", reason="no disk"))
    with plugin_of(api, tmp_path, capsys) as plugin:
        code, out, error = plugin("wait", "slow", "done", "--timeout", "0")
        assert (code, out, error.count("\n")) == (EXIT_TIMEOUT, "tfjob/done: Done\n", 1)
        code, out, error = plugin("wait", "--all", "--timeout", "0")
        assert (code, out, error.count("\n")) == (1, "tfjob/done: Done\n", 2)
        assert "kubectl tfjob: team/broken has failed: no disk\n" in error
        for flags in ([], ["slow", "--all"], ["slow", "-l", "a=b"]):
            code, _, error = plugin("wait", *flags)
            assert (code, error) == (
                2,
                "kubectl tfjob: choose jobs in one way: by NAME, with -l SELECTOR, or with --all\n",
            )


def test_a_deletion_is_awaited_also_of_a_job_that_is_gone_or_has_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    api = MemoryApi()
    store(api, a_tfjob("done", "Done"))
    with plugin_of(api, tmp_path, capsys) as plugin:
        code, out, error = plugin("wait", "gone", "done", "--for=delete", "--timeout", "0")
        assert (code, out) == (EXIT_TIMEOUT, "")
        assert "waiting for Deleted: tfjob/done is Done" in error
        assert plugin("delete", "done")[0] == 0
        missing = "there is no job tfjob/done in namespace team\n"
        assert plugin("wait", "tfjob/done", "--for", "deleted") == (0, "", missing)


def test_neighbours_have_different_colours_and_each_line_ends_them() -> None:
    found = line_prefixes([f"worker-{index}" for index in range(20)], coloured=True)
    assert found["worker-0"] != found["worker-1"].replace(b"1", b"0")
    assert all(each.endswith(b"\x1b[0m ") for each in found.values())
    assert len({each.partition(b"[worker")[0] for each in found.values()}) == 8
    assert line_prefixes(["worker-0"], coloured=False) == {"worker-0": b"[worker-0] "}
