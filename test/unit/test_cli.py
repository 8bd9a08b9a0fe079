"""The rules of cli.py, as a shell sees them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tfjob_controller import cli
from tfjob_controller.options import OPTIONS


def test_help_names_every_flag_and_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["run", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert ended.value.code == 0
    assert [option.flag for option in OPTIONS if option.flag not in shown] == []
    assert "127.0.0.1:8080" in shown


def test_version_says_the_program_and_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("tfjob-controller 0.")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(["run", "--wrokers=3"], "unrecognized arguments: --wrokers=3", id="unknown flag"),
        pytest.param(["run", "--work=3"], "unrecognized arguments", id="abbreviated flag"),
        pytest.param(["walk"], "invalid choice: 'walk'", id="unknown command"),
        pytest.param(["run", "--qps"], "expected one argument", id="value missing"),
        pytest.param(["run", "--qps=x"], "--qps must be a number", id="bad value"),
        pytest.param(["run", "--kubeconfig=/nowhere/kubeconfig"], "/nowhere/kubeconfig", id="no such kubeconfig"),
    ],
)
def test_what_cannot_be_used_ends_with_one_line_and_code_2(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.startswith("tfjob-controller: ")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("tfimage: x", "tfimage", id="unknown key"),
        pytest.param("tfImage: [", "no YAML", id="no YAML"),
        pytest.param(None, "cannot read", id="no file"),
    ],
)
def test_a_config_file_that_cannot_be_used_is_named(
    text: str | None, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "controller.yaml"
    if text is not None:
        file.write_text(text)
    assert cli.main(["run", f"--controller-config-file={file}"]) == 2
    error = capsys.readouterr().err
    assert str(file) in error
    assert words in error
    assert error.count("\n") == 1


def test_help_does_not_wait_for_heavy_imports() -> None:
    code = "import sys, tfjob_controller.cli as c; c.build_parser(); print({'kubernetes', 'yaml'} & {*sys.modules})"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.split() == ["set()"]
