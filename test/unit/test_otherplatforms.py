"""The plugin and the client need only the base requirements, and nothing that Windows lacks: helpers.otherplatform."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers import otherplatform
from helpers.jobserver import a_tfjob, flags_of, store
from helpers.memoryapi import MemoryApi
from tfjob_controller.cli import OPERATOR_MODULES

# Every module is imported; those of `tfjob_controller` in the arguments, and what they contain.
IMPORT_ALL = """
import importlib, pkgutil
for root in {roots!r}:
    package = importlib.import_module("tfjob_controller." + root)
    for each in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not each.name.endswith("__main__"):
            importlib.import_module(each.name)
print("imported")
"""
MAIN = "import sys; from tfjob_controller.{module} import main; sys.argv[1:] = {arguments!r}; sys.exit(main())"
# A character that no Windows code page for Western Europe has, as the autoscaler's events have it.
ARROW = "scaled 1 → 2 workers"


def run_elsewhere(settings: list[str], code: str, **variables: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, otherplatform.__file__, *settings, "--", code]
    environment = {**os.environ, "PYTHONPATH": "", **variables}
    return subprocess.run(command, capture_output=True, timeout=300, check=False, env=environment)


@pytest.fixture
def flags(tmp_path: Path) -> Iterator[list[str]]:
    """Returns the flags for an API server with one job."""
    api = MemoryApi()
    store(api, a_tfjob("train", "Running", state="Running", reason=ARROW))
    with flags_of(api, tmp_path) as flags:
        yield flags


@pytest.mark.parametrize(
    ("settings", "roots"),
    [
        pytest.param(["base", "windows"], ["client", "kubectl"], id="base"),
        pytest.param(["base", "extra=simulate", "windows"], ["simulator"], id="simulate"),
        pytest.param(["base", "extra=dashboard", "windows"], ["client", "kubectl", "dashboard"], id="dashboard"),
    ],
)
def test_every_module_of_the_plugin_can_be_imported_with_the_base_requirements_on_windows(
    settings: list[str], roots: list[str]
) -> None:
    done = run_elsewhere(settings, IMPORT_ALL.format(roots=roots))
    assert (done.stdout.decode(), done.stderr.decode()) == ("imported\n", "")


@pytest.mark.parametrize("name", ["uvloop", "fcntl"])
def test_what_is_missing_there_is_missing_in_these_tests(name: str) -> None:
    done = run_elsewhere(["base", "windows"], f"import {name}")
    assert f"No module named '{name}'" in done.stderr.decode()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(["--help"], "describe", id="help"),
        pytest.param(["list", "-o", "json"], '"items"', id="list"),
        pytest.param(["describe", "train"], ARROW, id="describe"),
        pytest.param(["submit", "x", "--image", "i", "--dry-run=client", "-o", "yaml"], "kind: TFJob", id="submit"),
        pytest.param(["__complete", "sus"], "suspend", id="completion"),
    ],
)
def test_commands_work_with_the_base_requirements_on_windows(
    arguments: list[str], words: str, flags: list[str]
) -> None:
    given = arguments if arguments[0] == "__complete" else [*arguments, *flags]
    code = MAIN.format(module="kubectl.cli", arguments=given)
    # A pipe there has the code page of the machine.
    done = run_elsewhere(["base", "windows"], code, PYTHONIOENCODING="cp1252")
    shown = done.stdout.decode() + done.stderr.decode()
    assert (done.returncode, words in shown) == (0, True), shown


def test_the_client_works_with_the_base_requirements_on_windows(flags: list[str]) -> None:
    namespace, kubeconfig = flags[1], flags[3]
    code = "from tfjob_controller.client import Client\n"
    code += f"with Client({kubeconfig!r}, namespace={namespace!r}) as client: print(client.job('train').phase)"
    done = run_elsewhere(["base", "windows"], code)
    assert (done.stdout.decode(), done.stderr.decode()) == ("Running\n", "")


@pytest.mark.parametrize("command", ["run", "extender"])
def test_a_program_of_the_operator_says_what_to_install(command: str) -> None:
    done = run_elsewhere(["base"], MAIN.format(module="cli", arguments=[command]))
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode() == (
        f"tfjob-controller: {command} needs packages that are not installed here ({', '.join(OPERATOR_MODULES)}); "
        "in a clone of the project: pip install '.[operator]'\n"
    )


def test_the_extra_operator_has_all_that_its_programs_need() -> None:
    """And that is what they look for at their start."""
    code = f"{IMPORT_ALL.format(roots=['programs', 'controller', 'gangscheduler'])}"
    done = run_elsewhere(["base", "extra=operator"], code)
    assert (done.stdout.decode(), done.stderr.decode()) == ("imported\n", "")
    added = otherplatform.modules_without(otherplatform.required()) - otherplatform.modules_without(
        otherplatform.required(["operator"])
    )
    assert set(OPERATOR_MODULES) <= added
