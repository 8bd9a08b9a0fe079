"""The rules by which commands are found in pages, and by which what they print is compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers import docs
from helpers.docs import blocks, commands, inline_commands
from helpers.docsshell import bounded, missing_from


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(docs, "ROOT", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("```console\n$ a b\nshown\n$ c\n```\n", ["a b", "c"], id="prompts"),
        pytest.param("```console\n$ a \\\n  b\nshown\n```\n", ["a \\\n  b"], id="goes on behind a backslash"),
        pytest.param("```console\n$ a <<EOF\n> one\n> EOF\nshown\n```\n", ["a <<EOF\none\nEOF"], id="here-document"),
        pytest.param("```sh\n# why\na\n\nb # why\n```\n", ["a", "b # why"], id="a script, line by line"),
        pytest.param("```sh\nfor x in 1; do\n  a\ndone\n```\n", ["for x in 1; do\n  a\ndone"], id="a loop"),
        pytest.param("```sh\na\ncase $? in\n0) b ;;\nesac\n```\n", ["a\ncase $? in\n0) b ;;\nesac"], id="exit code"),
        pytest.param("1. do:\n\n   ```sh\n   a\n   ```\n", ["a"], id="in a list"),
        pytest.param("so:\n\n    kubectl x\n    make y\n\nand\n", ["kubectl x", "make y"], id="indented"),
        pytest.param("so:\n\n    first,second\n    make y\n", [], id="indented text"),
        pytest.param("```\n$ a\n```\n", ["a"], id="no language, but a prompt"),
        pytest.param("```text\nkubectl x\n```\n", ["kubectl x"], id="text that is a command"),
        pytest.param("```yaml\nkubectl: x\n```\n", [], id="yaml"),
        pytest.param("```{code-block} sh\na\n```\n", ["a"], id="directive"),
    ],
)
def test_commands_are_found(root: Path, text: str, expected: list[str]) -> None:
    (root / "page.md").write_text(text)
    assert [command.text for command in commands("page.md")] == expected


def test_what_follows_a_prompt_is_what_the_command_shows_and_lines_count_from_one(root: Path) -> None:
    (root / "page.md").write_text("# Page\n\n```console\n$ a\none\ntwo\n$ b\n```\n")
    first, second = commands("page.md")
    assert (first.line, first.shown, second.line, second.shown) == (4, ("one", "two"), 7, ())


def test_commands_in_the_running_text_have_a_program_and_a_word_more(root: Path) -> None:
    (root / "page.md").write_text("Say `make x` or `kubectl`, and ``a `b` c``.\n\n```sh\n`make y`\n```\n")
    assert [each.text for each in inline_commands("page.md")] == ["make x"]


def test_a_block_may_say_which_file_it_is() -> None:
    (block,) = blocks("```yaml title=a/b.yaml\nx: 1\n```\n")
    assert (block.title, block.lines) == ("a/b.yaml", ("x: 1",))


@pytest.mark.parametrize(
    "text",
    [
        "kubectl get tfjobs --watch",
        "kubectl tfjob logs train --replica all -f",
        "kubectl logs POD -c dataset-initializer --follow",
        "tfjob-controller run --kubeconfig ~/.kube/config",
    ],
)
def test_what_would_never_end_is_bounded(text: str) -> None:
    assert bounded(text) == f"until-it-speaks {text}"


@pytest.mark.parametrize("text", ["kubectl get -f x.yaml", "tfjob-controller run --help"])
def test_what_ends_by_itself_is_left_alone(text: str) -> None:
    assert bounded(text) == text


@pytest.mark.parametrize(
    ("out", "shown", "missing"),
    [
        pytest.param("NAME   STATE\na   b\n", ["NAME  STATE", "x  y"], [], id="a table is compared by its columns"),
        pytest.param("NAME   AGE\n", ["NAME  STATE"], ["NAME STATE"], id="another column"),
        pytest.param("a created\nmore\n", ["a created", "… and 3 more"], [], id="what varies is left out"),
        pytest.param("a made\n", ["a created"], ["a created"], id="other words"),
    ],
)
def test_what_is_shown_is_compared_with_what_is_printed(out: str, shown: list[str], missing: list[str]) -> None:
    assert missing_from(out, shown) == missing
