"""Which frameworks there are, with packages that are really on the path."""

from __future__ import annotations

import configparser
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import structlog

from helpers.distributions import install
from tfjob_controller.jobs.frameworks import registry
from tfjob_controller.jobs.frameworks.registry import BUILT_IN, GROUP, by_command, discover

ROOT = Path(__file__).parents[4]
NAMES = ["torch", "tensorflow", "jax", "xgboost", "mpi", "plain"]

# A package of somebody else, whose framework is right but for what a test changes.
PLUGIN = """
from tfjob_controller.jobs.frameworks.base import ByEnvironment
values = dict(
    name="ring", runtime="ring-distributed", reserved=frozenset(), variables=lambda setting, index: {{}},
    check=lambda setting: None, commands=("ringrun",),
)
values.update({changes})
FRAMEWORK = ByEnvironment(**values)
"""

Install = Callable[[str, str, str], None]


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs a distribution: (its name, its framework's name, the text of its module)."""
    monkeypatch.syspath_prepend(tmp_path)

    def put(distribution: str, framework: str, text: str) -> None:
        module = distribution.replace("-", "_")
        monkeypatch.delitem(sys.modules, module, raising=False)
        install(tmp_path, distribution, {f"{module}.py": text}, {GROUP: {framework: f"{module}:FRAMEWORK"}})

    return put


def discovered() -> tuple[list[str], list[dict[str, Any]]]:
    """(names of all frameworks, lines of the log)."""
    with structlog.testing.capture_logs() as lines:
        return list(discover()), list(lines)


def test_the_built_in_ones_are_there() -> None:
    assert [each.name for each in BUILT_IN] == NAMES
    names, lines = discovered()
    assert names[: len(NAMES)] == NAMES
    assert not lines


def test_they_are_entry_points_like_all_others() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    declared = setup["options.entry_points"][GROUP].strip().splitlines()
    entries = (EntryPoint(*line.split(" = "), GROUP) for line in declared)
    assert {entry.name: entry.load() for entry in entries} == {each.name: each for each in BUILT_IN}


def test_they_do_not_meet_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    package = registry.__name__.rpartition(".")[0]
    install(tmp_path, "tfjob-controller", {}, {GROUP: {name: f"{package}.{name}:FRAMEWORK" for name in NAMES}})
    assert discovered() == (NAMES, [])


def test_a_source_tree_without_metadata_has_them_all() -> None:
    program = (
        "import importlib.metadata as metadata\nmetadata.entry_points = lambda **keywords: []\n"
        "from tfjob_controller.jobs.frameworks.registry import frameworks\nprint(*frameworks())"
    )
    result = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert result.stdout.split() == NAMES


def test_names_runtimes_and_commands_are_each_of_one_framework() -> None:
    assert len({each.runtime for each in BUILT_IN}) == len(BUILT_IN)
    commands = [command for each in BUILT_IN for command in each.commands]
    assert len(set(commands)) == len(commands)


def test_a_package_of_ones_own_adds_one(plugin: Install) -> None:
    plugin("acme-ring", "ring", PLUGIN.format(changes={}))
    assert discovered() == ([*NAMES, "ring"], [])


@pytest.mark.parametrize(
    ("framework", "text", "reason"),
    [
        pytest.param(
            "ring", "import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'", id="import"
        ),
        pytest.param("ring", "raise SystemExit(3)", "SystemExit: 3", id="exit"),
        pytest.param("ring", "raise ValueError('two\\nlines')", "ValueError: two lines", id="two lines"),
        pytest.param(
            "ring", "", "AttributeError: module 'acme_ring' has no attribute 'FRAMEWORK'", id="no such object"
        ),
        pytest.param("ring", "FRAMEWORK = 'torch'", "ValueError: its name must be of type str", id="a word"),
        pytest.param(
            "ring",
            PLUGIN.format(changes={"commands": "ringrun"}),
            "ValueError: its commands must be of type tuple",
            id="commands that are letters",
        ),
        pytest.param(
            "ring",
            PLUGIN.format(changes={}) + "class Half:\n    pass\nfor name in values: setattr(Half, name, values[name])\n"
            "Half.port, Half.has_launcher = 1, False\nFRAMEWORK = Half()",
            "ValueError: it needs a method problem",
            id="methods",
        ),
        pytest.param(
            "Ring",
            PLUGIN.format(changes={"name": "Ring"}),
            "ValueError: its name is 'Ring': must be lower-case letters, digits and dashes, a letter first",
            id="a name that no job may say",
        ),
        pytest.param(
            "rings",
            PLUGIN.format(changes={}),
            "ValueError: its name is 'ring', and that of its entry point 'rings': use one name for both",
            id="two names",
        ),
        pytest.param(
            "torch",
            PLUGIN.format(changes={"name": "torch"}),
            "ValueError: framework torch already exists: choose another name",
            id="a built-in name",
        ),
        pytest.param(
            "ring",
            PLUGIN.format(changes={"runtime": "plain"}),
            "ValueError: runtime plain belongs to framework plain: name another one",
            id="a built-in runtime",
        ),
        pytest.param(
            "ring",
            PLUGIN.format(changes={"commands": ("ringrun", "torchrun")}),
            "ValueError: command torchrun already selects framework torch: remove it from commands",
            id="a built-in command",
        ),
    ],
)
def test_one_that_cannot_be_used_is_left_out_in_one_line(
    plugin: Install, framework: str, text: str, reason: str
) -> None:
    plugin("acme-ring", framework, text)
    names, lines = discovered()
    assert names == NAMES
    assert lines == [
        {
            "log_level": "warning",
            "event": "framework left out",
            "framework": framework,
            "distribution": "acme-ring 1.0",
            "reason": reason,
        }
    ]


def test_of_two_packages_with_one_name_the_first_by_name_stays(plugin: Install) -> None:
    plugin("b-ring", "ring", PLUGIN.format(changes={"port": 2}))
    plugin("a-ring", "ring", PLUGIN.format(changes={"port": 1, "runtime": "other", "commands": ()}))
    names, lines = discovered()
    assert names == [*NAMES, "ring"]
    assert discover()["ring"].port == 1
    assert [(line["distribution"], line["reason"]) for line in lines] == [
        ("b-ring 1.0", "ValueError: framework ring already exists: choose another name")
    ]


def test_a_broken_package_hides_no_other(plugin: Install) -> None:
    plugin("a-ring", "a", "raise ValueError")
    plugin("b-ring", "ring", PLUGIN.format(changes={}))
    assert discovered()[0] == [*NAMES, "ring"]


def test_they_are_looked_for_once(plugin: Install) -> None:
    before = registry.frameworks()
    plugin("acme-ring", "ring", PLUGIN.format(changes={}))
    assert registry.frameworks() is before


@pytest.mark.parametrize(
    ("command", "name"),
    [
        pytest.param(["torchrun", "--nnodes=2", "train.py"], "torch", id="torchrun"),
        pytest.param(["/opt/conda/bin/torchrun"], "torch", id="in a folder"),
        pytest.param(["python", "-m", "torch.distributed.run", "train.py"], "torch", id="as a module"),
        pytest.param(["/usr/bin/python3.11", "-u", "-m", "torch.distributed.run"], "torch", id="after an option"),
        pytest.param(["mpirun", "-np", "2", "./pi"], "mpi", id="mpirun"),
        pytest.param(["python", "train.py", "-m", "torch.distributed.run"], None, id="a program's own option"),
        pytest.param(["python", "-m", "train"], None, id="another module"),
        pytest.param(["python"], None, id="Python alone"),
        pytest.param(["torch.distributed.run"], "torch", id="the module as a program"),
        pytest.param(["echo", "torchrun"], None, id="not the first word"),
        pytest.param(["/torchrun/"], None, id="a folder of that name"),
        pytest.param([""], None, id="an empty word"),
        pytest.param([], None, id="nothing"),
    ],
)
def test_the_command_chooses(command: Sequence[str], name: str | None) -> None:
    framework = by_command(command)
    assert (framework.name if framework else None) == name


def test_looking_for_them_takes_no_library_along() -> None:
    program = "import sys, tfjob_controller.jobs.frameworks.registry; print(*sys.modules)"
    environment = {**os.environ, "PYTHONWARNINGS": "error"}
    result = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, env=environment
    )
    assert not {"cryptography", "kubernetes", "torch", "tfjob_controller.jobs.plan"} & set(result.stdout.split())
