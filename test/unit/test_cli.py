"""The rules of cli.py, as a shell sees them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from helpers import interrupt
from helpers.poll import eventually
from tfjob_controller import cli
from tfjob_controller.flags import Option
from tfjob_controller.options import EXTENDER_OPTIONS, OPTIONS


@pytest.mark.parametrize(
    ("command", "options", "default"),
    [("run", OPTIONS, "127.0.0.1:8080"), ("extender", EXTENDER_OPTIONS, "127.0.0.1:8888")],
    ids=["run", "extender"],
)
def test_help_names_every_flag_and_its_default(
    command: str, options: Sequence[Option], default: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([command, "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert ended.value.code == 0
    assert [option.flag for option in options if option.flag not in shown] == []
    assert default in shown


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
        pytest.param(["extender", "--mode=both"], "--mode must be one of extender, affinity", id="bad mode"),
        pytest.param(["extender", "--extender-bind-address=0"], "cannot be off in mode extender", id="no server"),
        pytest.param(["extender", "--extender-tls-cert-file=c.pem"], "go together", id="half of TLS"),
        pytest.param(
            ["dashboard", "--dashboard-bind-address=:8443"], "beyond loopback", id="plain HTTP beyond loopback"
        ),
        pytest.param(["dashboard", "--dashboard-bind-address=:8443", "--behind-tls-proxy"], "--hosts", id="no host"),
        pytest.param(["dashboard", "--dashboard-tls-key-file=k.pem"], "go together", id="half of the dashboard's TLS"),
        pytest.param(["dashboard"], "--api-server", id="no API server"),
        pytest.param(["extender", "--kubeconfig=/nowhere"], "/nowhere", id="no kubeconfig for the extender"),
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


def test_a_template_of_init_containers_that_cannot_be_used_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kubeconfig, template = tmp_path / "kubeconfig", tmp_path / "template.yaml"
    cluster = "{name: a, cluster: {server: http://127.0.0.1:9}}"
    contexts = "contexts: [{name: a, context: {cluster: a}}]\ncurrent-context: a\n"
    kubeconfig.write_text(f"apiVersion: v1\nkind: Config\nclusters: [{cluster}]\n{contexts}")
    template.write_text("name: wait")
    flags = [f"--kubeconfig={kubeconfig}", f"--pytorch-init-container-template-file={template}"]
    flags.append("--kubeflow-v1-api=PyTorchJob")
    assert cli.main(["run", *flags]) == 2
    assert capsys.readouterr().err.endswith(f"{template}: must be a list of containers\n")


def ended(*arguments: str, output: int) -> tuple[int, str]:
    """The exit code and the standard error of the program, which writes to this descriptor."""
    command = [sys.executable, "-m", "tfjob_controller", *arguments]
    done = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, text=True, timeout=300)
    return done.returncode, done.stderr


def test_a_program_whose_output_cannot_be_written_ends_without_a_traceback() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    assert ended("--version", output=writer) == (141, "")
    os.close(writer)
    with open("/dev/full", "w") as full:
        error = "tfjob-controller: cannot write the output: No space left on device\n"
        assert ended("--version", output=full.fileno()) == (1, error)


def test_an_interrupted_simulation_ends_at_once_with_all_of_its_processes() -> None:
    command = [sys.executable, "-m", "tfjob_controller", "simulate", "--seeds=50", "--jobs=300", "--parallel=2"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=interrupt.allow, process_group=0
    ) as running:
        children = Path(f"/proc/{running.pid}/task/{running.pid}/children")
        # The tracker of resources, and the processes that simulate.
        eventually(lambda: len(children.read_text().split()) >= 3)
        os.killpg(running.pid, signal.SIGINT)
        # Both end with the last process that has them, a process that has just been started with a traceback.
        out, _ = running.communicate(timeout=300)
    assert (running.returncode, out) == (130, "")


def test_help_does_not_wait_for_heavy_imports() -> None:
    code = "import sys, tfjob_controller.cli as c; c.build_parser(); print({'kubernetes', 'yaml'} & {*sys.modules})"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.split() == ["set()"]
