"""A kind of job is a folder and a line in kinds/registry.py: nothing else knows it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import tfjob_controller
from tfjob_controller.kinds.registry import KINDS

PACKAGE = Path(tfjob_controller.__file__).parent
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


def test_without_its_folders_and_its_line_nothing_misses_a_kind(tmp_path: Path) -> None:
    copy = tmp_path / "tfjob_controller"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for layer in ("kinds", "api"):
        shutil.rmtree(copy / layer / "kubeflowtrainer")
    registry = copy / "kinds" / "registry.py"
    lines = registry.read_text().splitlines()
    kept = [line for line in lines if "kubeflowtrainer" not in line]
    assert len(lines) - len(kept) == 1
    registry.write_text("\n".join(kept).replace(", KUBEFLOW_TRAINJOB", "") + "\n")
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout.split()) == (0, ["tfjob", "trainjob"]), done.stderr
