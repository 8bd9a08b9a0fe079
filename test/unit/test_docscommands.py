"""Every command of the README and the docs is run by a test, or there is a reason why none can run it.

test/integration/test_docs_commands.py runs all commands that helpers/docselsewhere.py does not name.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import io
import os
import re
import shlex
import subprocess

import pytest

from helpers.docs import PROGRAMS, ROOT, blocks, commands, inline_commands, is_command_block, pages
from helpers.docselsewhere import ELSEWHERE, claim_on
from helpers.docsstage import PAGES
from tfjob_controller.cli import build_parser

ALL = [command for page in pages() for command in commands(page)]
INLINE = [command for page in pages() for command in inline_commands(page)]
HERE = [command for command in ALL if claim_on(command) is None]
# What a reader's shell has in the test that runs all others (helpers/docsshell.py), beside what bash has itself.
PROVIDED = ("kubectl", "tfjob-controller", ".venv/bin/tfjob-controller", "python", "source", "for", "cd", "cp", "mkdir")


def test_the_common_test_can_run_what_no_other_test_runs() -> None:
    """Otherwise helpers/docselsewhere.py names another test or a reason, and `PAGES` has values for placeholders."""
    assert [command.place for command in HERE if command.text.split()[0] not in PROVIDED] == []
    assert [command.place for command in HERE if "…" in command.text] == []


def test_the_tests_that_run_other_commands_exist() -> None:
    named = [path for entry in ELSEWHERE for path in re.findall(r"test/\S+\.py", entry.why)]
    assert len(named) > 5
    assert [path for path in named if not (ROOT / path).is_file()] == []


def test_no_exception_outlives_its_command() -> None:
    claims = [claim_on(command) for command in ALL]
    assert [entry for entry in ELSEWHERE if entry not in claims] == []


def test_the_preconditions_of_a_page_are_those_that_its_commands_need() -> None:
    for page, given in PAGES.items():
        texts = [command.text for command in HERE if command.page == page]
        assert texts, f"{page} has no commands"
        assert [old for old in given.replaced if not any(old in text for text in texts)] == [], page


def test_the_make_targets_that_pages_name_run_modules_that_exist() -> None:
    """Variables and arguments beside a target do not change its recipe, so each target is read once."""
    targets = {command.make_target: command for command in (*ALL, *INLINE) if "…" not in command.make_target}
    for command in targets.values():
        if command.make_target:
            modules = re.findall(r"python\S* -m ([\w.]+)", recipe_of(command.text))
            assert [name for name in modules if importlib.util.find_spec(name) is None] == [], command.place


def recipe_of(text: str) -> str:
    """Returns what make would run."""
    # -o: never make .venv anew here, which the tests run from. A placeholder is no argument.
    words = text.partition("#")[0].replace("…", "x").split(maxsplit=1)[1]
    process = subprocess.run(
        ["bash", "-c", f"make --dry-run -o .venv/.ready-local -o .venv/.ready-dev {words}"],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert process.returncode == 0, f"{text}: {process.stderr}"
    assert process.stdout, text
    return process.stdout


def test_the_variables_that_pages_give_to_make_are_read() -> None:
    text = (ROOT / "Makefile").read_text() + "".join(path.read_text() for path in (ROOT / "hack").rglob("*.py"))
    for command in (*ALL, *INLINE):
        for name in re.findall(r"\b([A-Z_]+)=", command.text.partition("#")[0]) if command.make_target else ():
            assert re.search(rf"\$\({name}\)|[\"']{name}[\"']|\b{name}=", text), f"{command.place}: {name} is not read"


def test_the_text_names_only_commands_and_flags_of_the_controller_that_exist() -> None:
    for command in INLINE:
        program, *words = shlex.split(command.text)
        if program == "tfjob-controller":
            text = help_of(*(word for word in words if word.isalpha() and word.islower()))
            flags = [word.partition("=")[0] for word in words if word.startswith("--")]
            assert [flag for flag in flags if f"{flag} " not in text and f"{flag}," not in text] == [], command.place


@functools.cache
def help_of(*names: str) -> str:
    """Returns what `tfjob-controller NAMES --help` prints, in which a flag is followed by a blank or a comma."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), pytest.raises(SystemExit, match="0"):
        build_parser().parse_args([*names, "--help"])
    return out.getvalue().replace("\n", " ").replace("=", " ")


def test_no_block_that_counts_as_text_hides_a_command() -> None:
    """A block with commands names its language: ```sh or ```console."""
    hidden = [
        f"{page}:{block.line}: {line}"
        for page in pages()
        for block in blocks((ROOT / page).read_text("utf-8"))
        if block.language in ("", "text") and not is_command_block(block)
        for line in block.lines
        if line.startswith("$ ") or line.split(" ")[0] in PROGRAMS
    ]
    assert hidden == []
