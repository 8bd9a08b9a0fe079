"""A kind of job is a folder and a line in kinds/registry.py: nothing else knows it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tfjob_controller
from tfjob_controller.client.kinds import KINDS as CLIENT_KINDS
from tfjob_controller.kinds.registry import KINDS

PACKAGE = Path(tfjob_controller.__file__).parent
SOURCE, ROOT = PACKAGE.parent, PACKAGE.parents[1]
NO_CACHES = shutil.ignore_patterns("__pycache__", "*.egg-info")
# The tests of the parts that deal with kinds of jobs.
OTHERS = ("controller", "jobs", "kinds/tfjob", "kinds/trainjob", "telemetry", "client")
IMPORT_ALL = """
import importlib, pkgutil, tfjob_controller
from tfjob_controller.kinds.registry import KINDS
for module in pkgutil.walk_packages(tfjob_controller.__path__, "tfjob_controller."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
print(*(kind.name for kind in KINDS))
"""


def test_each_kind_has_names_of_its_own() -> None:
    for attribute in ("name", "label", "resource", "queue_page"):
        assert len({getattr(kind, attribute) for kind in KINDS}) == len(KINDS)


def test_the_client_knows_only_kinds_that_the_controller_can_run() -> None:
    assert {kind.resource for kind in CLIENT_KINDS} <= {kind.resource for kind in KINDS}


@pytest.mark.parametrize("check", ["imports", pytest.param("tests", marks=pytest.mark.long)])
def test_without_its_folders_and_its_line_nothing_misses_a_kind(tmp_path: Path, check: str) -> None:
    """Kubeflow's TrainJob is deleted from a copy; `tests`: the unit tests of the rest run there."""
    shutil.copytree(SOURCE, tmp_path / "src", ignore=NO_CACHES)
    package = tmp_path / "src" / PACKAGE.name
    for layer in ("kinds", "api"):
        shutil.rmtree(package / layer / "kubeflowtrainer")
    delete_lines(package / "kinds" / "registry.py", ", KUBEFLOW_TRAINJOB")
    command = ["-c", IMPORT_ALL]
    if check == "tests":
        shutil.copy(ROOT / "setup.cfg", tmp_path)
        shutil.copytree(ROOT / "test", tmp_path / "test", ignore=NO_CACHES)
        for each in ("hack", "docs", "manifests"):
            (tmp_path / each).symlink_to(ROOT / each)
        delete_lines(tmp_path / "test" / "helpers" / "kindplans.py")
        command = [
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-m",
            "not long",
            *map("test/unit/{}".format, OTHERS),
        ]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "src")}
    done = subprocess.run(
        [sys.executable, *command], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stdout + done.stderr
    if check == "imports":
        assert done.stdout.split() == ["tfjob", "trainjob"]


def delete_lines(path: Path, *words: str) -> None:
    """Deletes the lines that name the kind, one beside its import, and these words."""
    lines = path.read_text().splitlines()
    kept = [line for line in lines if "kubeflow" not in line]
    assert 1 <= len(lines) - len(kept) <= 2
    text = "\n".join(kept) + "\n"
    for each in words:
        text = text.replace(each, "")
    path.write_text(text)
