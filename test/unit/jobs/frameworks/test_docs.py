"""docs/trainjob-frameworks.md says what the code does, and its example works."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

from helpers.distributions import install
from helpers.trainsettings import setting_of
from tfjob_controller.jobs.frameworks.base import LAUNCHER, NODE, Framework
from tfjob_controller.jobs.frameworks.registry import BUILT_IN, GROUP, discover

PAGE = (Path(__file__).parents[4] / "docs" / "trainjob-frameworks.md").read_text()
FILES = dict(re.findall(r"^```\w+ title=(\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))


def rows(framework: Framework) -> list[str]:
    setting = setting_of(3, cpus=2.5)
    role, index = (LAUNCHER, "0") if framework.has_launcher else (NODE, "2")
    environment = framework.environment(setting, role, index)
    return [f"| {framework.name} | `{name}` | `{value}` |" for name, value in environment.items()]


def test_the_table_of_variables_has_the_variables_of_nodes() -> None:
    for framework in BUILT_IN:
        assert re.findall(rf"^\| {framework.name} \| .*$", PAGE, re.MULTILINE) == rows(framework)


def test_the_table_of_frameworks_has_runtime_and_commands() -> None:
    for framework in BUILT_IN:
        head = rf"^\| `{framework.name}` \| `{framework.runtime}` \|"
        row = re.search(rf"{head} (.*) \| .* \|$|{head} \| .* \|$", PAGE, re.MULTILINE)
        assert row is not None
        commands = [words.rpartition(" ")[2] for words in re.findall(r"`([^`]+)`", row[1] or "")]
        assert commands == list(framework.commands)


@pytest.fixture
def ring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Framework:
    """The page's example, installed."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "acme_ring", raising=False)
    project = tomllib.loads(FILES["pyproject.toml"])["project"]
    modules = {"acme_ring.py": FILES["acme_ring.py"]}
    install(tmp_path, project["name"], modules, project["entry-points"], project["version"])
    return discover()["ring"]


def test_the_example_framework_is_found_and_gives_nodes_each_others_addresses(ring: Framework) -> None:
    setting = setting_of(2)
    assert ring.problem(setting) is None
    assert ring.problem(setting_of(1)) == "spec.numNodes: framework ring needs at least 2 nodes"
    told = ring.environment(setting, NODE, "1")
    assert told == {
        "RING_RANK": "1",
        "RING_NODES": "mnist-node-a6no-0.mnist-a6no:7000,mnist-node-a6no-1.mnist-a6no:7000",
    }
    assert set(told) == ring.reserved


def test_the_examples_runtime_is_the_one_that_it_names(ring: Framework) -> None:
    runtime = yaml.safe_load(FILES["ring-distributed.yaml"])
    assert (runtime["metadata"]["name"], runtime["spec"]["framework"]) == (ring.runtime, ring.name)
    assert [each["name"] for each in runtime["spec"]["templates"]["node"]["spec"]["containers"]] == [NODE]


def test_the_example_builds_into_a_package_that_declares_its_entry_point(tmp_path: Path) -> None:
    project, site = tmp_path / "project", tmp_path / "site"
    project.mkdir()
    site.mkdir()
    for name in ("pyproject.toml", "acme_ring.py"):
        (project / name).write_text(FILES[name])
    # As pip does it, in a process of its own, but without pip, which takes three seconds to find that out.
    build = "import setuptools.build_meta as backend, sys; backend.build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, site], cwd=project, check=True, capture_output=True, timeout=300)
    (wheel,) = site.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    assert (site / "acme_ring.py").read_text() == FILES["acme_ring.py"]
    found = importlib.metadata.distributions(path=[str(site)])
    assert [(each.name, each.group) for package in found for each in package.entry_points] == [("ring", GROUP)]
