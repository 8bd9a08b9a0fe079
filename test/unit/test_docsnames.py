"""What pages name exists (manifests, functions, tests), and they name all overlays, components and commands."""

from __future__ import annotations

import ast
import functools
import re
import shlex
from pathlib import Path

import pytest

from helpers.docs import DOCS, ROOT, commands, pages
from helpers.kubectl import MANIFESTS
from tfjob_controller.kubectl.arguments import COMMANDS, parse

TESTS = ROOT / "test"
SOURCE = ROOT / "src/tfjob_controller"
_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


@functools.cache
def definitions(path: Path) -> frozenset[str]:
    """Returns the functions and classes of a module, and methods as `Class.method`; none if it does not exist."""
    names: set[str] = set()
    for node in ast.parse(path.read_text("utf-8")).body if path.is_file() else ():
        if isinstance(node, ast.ClassDef | _FUNCTIONS):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{member.name}" for member in node.body if isinstance(member, _FUNCTIONS)}
    return frozenset(names)


# docs/install.md, and manifests on all pages

INSTALL = (DOCS / "install.md").read_text("utf-8").partition("\n## Which overlay\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize(("heading", "folder"), [("overlay", "overlays"), ("component", "components")])
def test_the_page_names_every_overlay_and_component(heading: str, folder: str) -> None:
    rows = INSTALL.partition(f"| {heading} |")[2].partition("\n\n")[0]
    named = set(re.findall(r"^\| `([\w-]+)` \|", rows, re.MULTILINE))
    assert named == {path.parent.name for path in (MANIFESTS / folder).glob("*/kustomization.yaml")}


def test_every_manifest_that_a_page_names_is_there() -> None:
    # Those of other repositories follow `.git/`.
    manifest = re.compile(r"(?<!\.git/)manifests/(?:overlays|components|base)[\w./-]*[\w-]")
    named = {path: page for page in (*pages(), "CHANGELOG.md") for path in manifest.findall((ROOT / page).read_text())}
    assert {path: page for path, page in named.items() if not (ROOT / path).exists()} == {}


def test_a_page_that_installs_an_overlay_installs_the_crds_first() -> None:
    first = {}
    for page in pages():
        texts = "\n".join(command.text for command in commands(page))
        if overlays := re.findall(r"^kubectl apply .*-k (manifests/overlays/\S+|production)", texts, re.MULTILINE):
            first[page] = overlays[0]
    assert set(first.values()) == {"manifests/overlays/crds"}, first


# docs/kubectl.md


def test_the_page_shows_every_command_of_the_plugin_with_an_example_that_it_can_read() -> None:
    page, plugin = "docs/kubectl.md", "kubectl tfjob "
    assert set(re.findall(rf"{plugin}(\w+)", (ROOT / page).read_text())) >= {command.name for command in COMMANDS}
    texts = [command.text.splitlines()[0] for command in commands(page) if command.text.startswith(plugin)]
    assert texts
    for text in texts:
        example = shlex.split(text.removeprefix(plugin), comments=True)
        assert parse(example).command == example[0]


# docs/architecture.md

# `module.Class.method`, `module.function` or `folder/module.function`, and what goes on with `, other`.
NAMED = re.compile(r"\b(?:[a-z]+/)?([a-z]+)\.([A-Za-z_]+)(?:\.([A-Za-z_]+))?((?:, _?[a-z_]+(?= |,|$))*)", re.MULTILINE)


def test_nothing_advises_to_install_this_package_from_an_index() -> None:
    """The package is on none, so that whoever registers its name would run code at those who follow the advice."""
    files = [ROOT / "README.md", *DOCS.rglob("*.md"), *DOCS.rglob("*.ipynb"), *SOURCE.rglob("*.py")]
    advice = re.compile(r"(pip install|: install) [^\n]{0,3}'?tfjob-controller(\[|[`'\" ])")
    assert [path.name for path in files if advice.search(path.read_text("utf-8"))] == []


def test_the_functions_that_the_page_on_architecture_names_exist() -> None:
    page = (DOCS / "architecture.md").read_text("utf-8")
    names: set[tuple[str, str]] = set()
    for block in re.findall(r"```text\n(.*?)```", page, flags=re.DOTALL):
        for module, first, second, more in NAMED.findall(block):
            if module != "handler":  # any of them
                owner = f"{first}." if second else ""
                names |= {(module, f"{owner}{second or first}")}
                names |= {(module, f"{owner}{name}") for name in more.split(", ")[1:]}
    assert len(names) > 30
    defined = {module: [definitions(path) for path in SOURCE.rglob(f"{module}.py")] for module, _ in names}
    unknown = [name for name in names if not any(name[1] in own for own in defined[name[0]])]
    assert unknown == []


# docs/security.md

SECURITY = (DOCS / "security.md").read_text("utf-8")
THREATS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in SECURITY.splitlines()
    if re.match(r"\| \d+ \|", line)
]
TEST = re.compile(r"`([\w/]+\.py)::(test_\w+)`")


def test_threats_are_numbered_from_one_on() -> None:
    assert [row[0].strip("| ") for row in THREATS] == [str(number) for number in range(1, len(THREATS) + 1)]


def test_a_threat_says_what_stops_it_and_names_tests_that_exist() -> None:
    for number, threat, stopped_by, tests in THREATS:
        assert threat, number
        assert stopped_by, number
        named = TEST.findall(tests)
        assert named, number
        assert TEST.sub("", tests).strip(" ,|") == "", number
        functions = {path: {name.split(".")[-1] for name in definitions(TESTS / path)} for path, _ in named}
        assert [f"{path}::{test}" for path, test in named if test not in functions[path]] == [], number


def test_every_security_test_stands_on_the_page() -> None:
    """So that what is mended there is also told."""
    named = {path for path, _ in TEST.findall(SECURITY)}
    written = {str(path.relative_to(TESTS)) for path in TESTS.rglob("test_security_*.py")}
    assert written <= named
