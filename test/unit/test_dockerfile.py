"""What can be said of the Dockerfile and its context without building anything."""

from __future__ import annotations

import configparser
import itertools
import re
from pathlib import Path

import pytest

from helpers import dockerfile
from localcluster import dockerimage

REPOSITORY = Path(__file__).resolve().parents[2]
FILE = dockerfile.read(REPOSITORY / "Dockerfile")
IGNORED = dockerfile.ignore_patterns(REPOSITORY / ".dockerignore")
LAST = ("initializer", "controller")


def settings() -> configparser.ConfigParser:
    found = configparser.ConfigParser()
    found.read(REPOSITORY / "setup.cfg")
    return found


def copied(stage: str) -> list[str]:
    """What the stage takes from the context."""
    words = [step.words({}) for step in FILE.stages[stage].of("COPY")]
    return [source for line in words if not line[0].startswith("--from=") for source in line[:-1]]


def test_the_version_in_the_labels_is_that_of_the_project() -> None:
    assert FILE.arguments["VERSION"] == settings()["metadata"]["version"]


@pytest.mark.parametrize("stage", FILE.stages)
def test_what_a_stage_copies_is_in_the_context(stage: str) -> None:
    """.dockerignore leaves out all that is not named there, and a build without Docker would not notice."""
    for source in copied(stage):
        assert dockerfile.context_files(REPOSITORY, source, IGNORED), source


def test_the_local_image_is_built_again_when_any_file_of_the_context_changes() -> None:
    assert {source for stage in FILE.stages for source in copied(stage)} == {*dockerimage.CONTEXT, *dockerimage.LOCKS}


@pytest.mark.parametrize(
    ("path", "is_left_out"),
    [
        ("src/tfjob_controller/cli.py", False),
        ("setup.cfg", False),
        ("hack/requirements/runtime.txt", False),
        ("hack/requirements/dev.txt", True),
        ("src/tfjob_controller/__pycache__/cli.cpython-311.pyc", True),
        ("src/tfjob_controller.egg-info/SOURCES.txt", True),
        (".git/config", True),
        (".venv/bin/python", True),
        ("test/unit/test_cli.py", True),
    ],
)
def test_the_context_is_what_is_needed_and_no_more(path: str, is_left_out: bool) -> None:
    assert dockerfile.is_ignored(path, IGNORED) == is_left_out


def test_the_tools_that_build_the_wheel_are_those_of_the_tests() -> None:
    locked = [
        set(re.findall(r"^[a-z0-9-]+==\S+", (REPOSITORY / f"hack/requirements/{name}.txt").read_text(), re.MULTILINE))
        for name in ("build", "dev")
    ]
    assert locked[0] <= locked[1]
    assert locked[0]


@pytest.mark.parametrize("name", LAST)
def test_an_image_runs_as_nobody_and_installs_nothing(name: str) -> None:
    stages = [FILE.stages[name]]
    while stages[-1].base in FILE.stages:
        stages.append(FILE.stages[stages[-1].base])
    assert [step.words({}) for stage in stages for step in stage.of("USER")] == [["65532:65532"]]
    assert [step for stage in stages for step in stage.of("RUN")] == []
    copies = [step.words({}) for stage in stages for step in stage.of("COPY")]
    assert {(words[0].partition("=")[0], words[-1]) for words in copies} == {("--from", "/opt/tfjob-controller")}


def test_the_controller_is_what_a_build_without_a_target_makes() -> None:
    assert [*FILE.stages][-1] == "controller"


def documented_builds() -> list[list[str]]:
    """The words of each `docker build` in the docs."""
    pages = [REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md")]
    text = "\n".join(page.read_text() for page in pages).replace("\\\n", " ")
    lines = (line.partition("docker build ")[2].partition("#")[0] for line in text.splitlines())
    return [re.sub(r"\$\([^)]*\)|`.*", "", line).split() for line in lines if line]


def test_what_the_docs_tell_docker_to_build_is_there() -> None:
    arguments = {step.words({})[0].partition("=")[0] for each in FILE.stages.values() for step in each.of("ARG")}
    known = {"--build-arg": arguments | {*FILE.arguments}, "--target": {*FILE.stages}}
    named = [
        (flag, value.partition("=")[0])
        for words in documented_builds()
        for flag, value in itertools.pairwise(words)
        if flag in known
    ]
    assert {("--build-arg", "REVISION"), ("--build-arg", "PYTHON_IMAGE"), ("--target", "initializer")} <= {*named}
    assert [(flag, value) for flag, value in named if value not in known[flag]] == []


@pytest.mark.parametrize("stage", FILE.stages)
def test_all_that_pip_fetches_is_locked(stage: str) -> None:
    installs = [step.text for step in FILE.stages[stage].of("RUN") if " install " in step.text]
    for command in (line for text in installs for line in text.split("&&") if " install " in line):
        assert "--require-hashes" in command or "--no-index" in command, command
