"""`kubectl tfjob` for tests: in the test's process, or as a program."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog

from helpers import interrupt
from tfjob_controller.kubectl import cli

# Exit code, standard output, standard error.
Run = Callable[..., tuple[int, str, str]]
# Log lines of the controller, which shares the process: a thread may still write one after `quiet`.
_LOG_LINE = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \[.*\n", re.MULTILINE)
_PROGRAM = "from tfjob_controller.kubectl.cli import main; raise SystemExit(main())"


def runner(capfd: pytest.CaptureFixture[str], kubeconfig: Path, namespace: str) -> Run:
    """Returns a function that runs the plugin in this process, by default in that namespace."""

    def run(*arguments: str, kubeconfig: Path = kubeconfig) -> tuple[int, str, str]:
        capfd.readouterr()
        own = arguments[: arguments.index("--")] if "--" in arguments else arguments
        given = [] if {"-n", "-A"} & set(own) else ["-n", namespace]
        code = cli.main([*own, *given, "--kubeconfig", str(kubeconfig), *arguments[len(own) :]])
        shown = capfd.readouterr()
        return code, _LOG_LINE.sub("", shown.out), shown.err

    return run


@contextmanager
def quiet() -> Iterator[None]:
    """Silences the controller's log, which would mix with the plugin's output: in tests they share a process."""
    before = structlog.get_config()
    structlog.configure(**{**before, "wrapper_class": structlog.make_filtering_bound_logger(logging.CRITICAL)})
    yield
    structlog.configure(**before)


@contextmanager
def program(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Starts the plugin as a process of its own, which is killed at the end if it still runs."""
    command = [sys.executable, "-c", _PROGRAM, *arguments]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes, preexec_fn=interrupt.allow) as running:
        try:
            yield running
        finally:
            running.kill()


def environment(kubeconfig: Path, namespace: str, folder: Path) -> dict[str, str]:
    """Returns variables for kubectl and shells: the plugin's programs on PATH, and a context with the namespace."""
    import yaml

    config = yaml.safe_load(kubeconfig.read_text())
    for context in config["contexts"]:
        context["context"]["namespace"] = namespace
    own = folder / "kubeconfig-of-a-shell"
    own.touch(mode=0o600)
    own.write_text(yaml.safe_dump(config))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return dict(os.environ, PATH=path, KUBECONFIG=str(own), HOME=str(folder))
