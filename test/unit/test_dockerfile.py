"""Rules of the Dockerfile that a build does not show; test/integration/test_image.py has those of the images."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

from localcluster import dockerimage

REPOSITORY = Path(__file__).resolve().parents[2]
TEXT = re.sub(r"\\\n", " ", (REPOSITORY / "Dockerfile").read_text())
STAGES = re.findall(r"^FROM \S+ AS (\S+)$", TEXT, re.MULTILINE)


def instructions(keyword: str) -> list[str]:
    return re.findall(rf"^{keyword} (.*)$", TEXT, re.MULTILINE)


def copied() -> set[str]:
    """Returns what stages take from the context."""
    return {name for line in instructions("COPY") if "--from=" not in line for name in line.split()[:-1]}


def test_the_local_image_is_built_again_when_any_file_of_the_context_changes() -> None:
    assert copied() == {*dockerimage.CONTEXT, *dockerimage.LOCKS}


def test_the_context_is_what_stages_copy_and_no_more() -> None:
    lines = (REPOSITORY / ".dockerignore").read_text().splitlines()
    patterns = [line for line in lines if not line.startswith("#")]
    assert patterns[0] == "*"
    assert {pattern[1:] for pattern in patterns if pattern.startswith("!")} == copied()
    assert patterns[-2:] == ["**/__pycache__", "**/*.egg-info"]


def test_the_tools_that_build_the_wheel_are_those_of_the_tests() -> None:
    locked = [
        set(re.findall(r"^[a-z0-9-]+==\S+", (REPOSITORY / f"hack/requirements/{name}.txt").read_text(), re.MULTILINE))
        for name in ("build", "dev")
    ]
    assert locked[0] <= locked[1]
    assert locked[0]


def test_both_images_run_as_nobody_and_a_build_without_a_target_makes_the_controller() -> None:
    assert instructions("USER") == ["65532:65532"]
    assert re.search(r"^USER 65532:65532$.*^FROM base AS base-initializer$", TEXT, re.MULTILINE | re.DOTALL)
    assert STAGES[-1] == "controller"


def documented_builds() -> list[list[str]]:
    """Returns the words of each `docker build` in the docs."""
    pages = [REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md")]
    text = "\n".join(page.read_text() for page in pages).replace("\\\n", " ")
    lines = (line.partition("docker build ")[2].partition("#")[0] for line in text.splitlines())
    return [re.sub(r"\$\([^)]*\)|`.*", "", line).split() for line in lines if line]


def test_the_docs_name_stages_and_arguments_that_exist() -> None:
    known = {"--build-arg": {line.partition("=")[0] for line in instructions("ARG")}, "--target": {*STAGES}}
    named = [
        (flag, value.partition("=")[0])
        for words in documented_builds()
        for flag, value in itertools.pairwise(words)
        if flag in known
    ]
    assert {("--build-arg", "REVISION"), ("--build-arg", "PYTHON_IMAGE"), ("--target", "initializer")} <= {*named}
    assert [(flag, value) for flag, value in named if value not in known[flag]] == []


def test_all_that_pip_fetches_is_locked() -> None:
    installs = [command for line in instructions("RUN") for command in line.split("&&") if " install " in command]
    assert len(installs) == 4
    assert [line for line in installs if not {"--require-hashes", "--no-index"} & {*line.split()}] == []
