"""The rules of `initialize` and `export` on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfjob_controller import cli
from tfjob_controller.storage.errors import StorageError
from tfjob_controller.storage.exporter import source_of
from tfjob_controller.storage.options import (
    resolve_export,
    resolve_initialize,
)
from tfjob_controller.util.commandline import UsageError


@pytest.mark.parametrize(
    ("flags", "environ", "uri"),
    [
        pytest.param({}, {"STORAGE_URI": "s3://a"}, "s3://a", id="Kubeflow's variable"),
        pytest.param(
            {}, {"STORAGE_URI": "s3://a", "TFJOB_CONTROLLER_STORAGE_URI": "s3://b"}, "s3://b", id="our own variable"
        ),
        pytest.param({"storage_uri": "s3://c"}, {"STORAGE_URI": "s3://a"}, "s3://c", id="flag"),
    ],
)
def test_the_uri_comes_from_a_flag_else_from_variables(
    flags: dict[str, str], environ: dict[str, str], uri: str
) -> None:
    assert resolve_initialize("model", flags, environ).storage_uri == uri
    assert resolve_export(flags, environ).storage_uri == uri


def test_without_a_uri_the_variable_is_named() -> None:
    with pytest.raises(UsageError, match="STORAGE_URI"):
        resolve_export({}, {"STORAGE_URI": " "})


def test_folders_are_those_of_the_workspace_unless_others_are_named() -> None:
    environ = {"STORAGE_URI": "s3://a"}
    assert resolve_initialize("dataset", {}, environ).target == "/workspace/dataset"
    assert resolve_initialize("model", {}, environ).target == "/workspace/model"
    assert resolve_initialize("model", {"target": "/x"}, environ).target == "/x"


@pytest.mark.parametrize(
    ("named", "has_output", "source"),
    [
        pytest.param("", False, "model", id="the model's folder"),
        pytest.param("", True, "output", id="a folder of its own beside it"),
        pytest.param("/x", True, "/x", id="named"),
    ],
)
def test_what_is_exported_is_the_output_if_there_is_one(
    named: str, has_output: bool, source: str, tmp_path: Path
) -> None:
    output, model = tmp_path / "output", tmp_path / "model"
    for each in (model, *([output] if has_output else [])):
        each.mkdir()
    options = resolve_export({"source": named}, {"STORAGE_URI": "s3://a"})
    assert source_of(options, str(output), str(model)) == str(tmp_path / source)


def test_where_a_program_has_left_nothing_the_folder_that_it_should_write_is_named(tmp_path: Path) -> None:
    output, model = tmp_path / "output", tmp_path / "model"
    options = resolve_export({}, {"STORAGE_URI": "s3://a"})
    with pytest.raises(StorageError, match=f"neither {output} nor {model} exists; .* to {output}$"):
        source_of(options, str(output), str(model))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(["initialize"], "required: what", id="no kind"),
        pytest.param(["initialize", "code"], "invalid choice: 'code'", id="unknown kind"),
        pytest.param(["initialize", "model"], "STORAGE_URI", id="no URI"),
        pytest.param(["export", "--parallel=0"], "--parallel must be", id="bad number"),
    ],
)
def test_a_command_line_that_cannot_be_used_ends_with_one_line_and_code_2(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STORAGE_URI", raising=False)
    assert cli.main(arguments) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
