"""A kind of job is a folder and a line in kinds/registry.py: nothing else knows it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import tfjob_controller
from audit.jobs.history import OWNERS
from tfjob_controller.client.kinds import KINDS as CLIENT_KINDS
from tfjob_controller.kinds import job_resources
from tfjob_controller.kinds.names import KIND_NAMES, OWN_KIND_NAMES
from tfjob_controller.kinds.registry import KINDS

PACKAGE = Path(tfjob_controller.__file__).parent
SOURCE, ROOT = PACKAGE.parent, PACKAGE.parents[1]
NO_CACHES = shutil.ignore_patterns("__pycache__", "*.egg-info")
# The tests of the parts that deal with kinds of jobs.
OTHERS = (
    ("controller", "jobs", "kinds/tfjob", "kinds/trainjob", "telemetry", "client"),
    ("kubectl", "programs", "generate"),
    ("dashboard",),
)
IMPORT_ALL = """
import importlib, pkgutil, tfjob_controller
from tfjob_controller.kinds.registry import KINDS
for module in pkgutil.walk_packages(tfjob_controller.__path__, "tfjob_controller."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
print(*(kind.name for kind in KINDS))
"""


def test_a_cluster_serves_one_api_of_tfjobs_and_the_remedy_names_the_flag_for_the_other() -> None:
    remedies = {kind.name: kind.resource.alternative for kind in KINDS if kind.resource.plural == "tfjobs"}
    assert remedies == {
        "tfjob": "add TFJob to --kubeflow-v1-api if the CRD of this cluster has v1",
        "tfjob-v1": "remove TFJob from --kubeflow-v1-api",
    }


def test_each_kind_has_names_of_its_own() -> None:
    for attribute in ("name", "label", "resource", "queue_page"):
        assert len({getattr(kind, attribute) for kind in KINDS}) == len(KINDS)


def test_the_client_knows_only_kinds_that_the_controller_can_run() -> None:
    assert {kind.resource for kind in CLIENT_KINDS} <= {kind.resource for kind in KINDS}


def test_the_names_of_kinds_on_a_command_line_are_those_of_their_resources() -> None:
    names = [(name.kind, name.plural) for name in KIND_NAMES]
    resources = [kind.resource for kind in CLIENT_KINDS]
    assert names == list(dict.fromkeys((resource.kind, resource.plural) for resource in resources))


def test_the_auditor_of_jobs_knows_the_kinds_of_the_client() -> None:
    """It shares no code with what it audits, so it has a list of its own."""
    assert set(OWNERS) == {name.plural for name in OWN_KIND_NAMES}


def test_the_kinds_whose_jobs_clients_count_are_known_without_their_adapters() -> None:
    names = {resource.full_name for resource in job_resources()}
    assert names == {"tfjobs.kubeflow.org", "trainjobs.kubeflow.org", "trainjobs.trainer.kubeflow.org"}


@pytest.mark.parametrize("tests", [(), *(pytest.param(tests, marks=pytest.mark.long, id=tests[0]) for tests in OTHERS)])
def test_without_its_folders_and_its_line_nothing_misses_a_kind(tmp_path: Path, tests: Sequence[str]) -> None:
    """Kubeflow's TrainJob is deleted from a copy, where all modules are imported, or these unit tests run."""
    shutil.copytree(SOURCE, tmp_path / "src", ignore=NO_CACHES)
    package = tmp_path / "src" / PACKAGE.name
    for layer in ("kinds", "api"):
        shutil.rmtree(package / layer / "kubeflowtrainer")
    delete_lines(package / "kinds" / "registry.py", "kubeflowtrainer", ", KUBEFLOW_TRAINJOB")
    command = ["-c", IMPORT_ALL]
    if tests:
        for config in ("setup.cfg", "pyproject.toml"):
            shutil.copy(ROOT / config, tmp_path)
        shutil.copytree(ROOT / "test", tmp_path / "test", ignore=NO_CACHES)
        for each in ("hack", "docs", "manifests"):
            (tmp_path / each).symlink_to(ROOT / each)
        delete_lines(tmp_path / "test" / "helpers" / "kindplans.py", "kubeflow")
        delete_lines(tmp_path / "test" / "unit" / "programs" / "test_security_informers.py", "trainer.kubeflow.org")
        command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not long"]
        command += map("test/unit/{}".format, tests)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "src")}
    done = subprocess.run(
        [sys.executable, *command], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stdout + done.stderr
    if not tests:
        assert done.stdout.split() == [kind.name for kind in KINDS if kind.name != "kubeflow-trainjob"]


def delete_lines(path: Path, name: str, text: str = "") -> None:
    """Deletes the lines with the name of the kind, one of which may be an import, and this text."""
    lines = path.read_text().splitlines()
    kept = [line for line in lines if name not in line]
    assert 1 <= len(lines) - len(kept) <= 2
    path.write_text("\n".join(kept).replace(text, "") + "\n")
