"""Every command of the README and the docs is run by a test, or it is said why none can run it.

test/integration/test_docs_commands.py runs all commands that helpers/docselsewhere.py does not name.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import re
import shlex
import subprocess

import pytest

from helpers.docscommands import (
    PROGRAMS,
    ROOT,
    Block,
    Command,
    blocks,
    commands,
    inline_commands,
    is_command_block,
    pages,
)
from helpers.docselsewhere import ELSEWHERE, TARGETS, Elsewhere, Target, claim_on, target_of
from helpers.docspages import PAGES, Page
from tfjob_controller.cli import build_parser

ALL = [each for page in pages() for each in commands(page)]
HERE = [each for each in ALL if claim_on(each) is None]
HERE_BY_PROGRAM = {each.text.split()[0]: each for each in HERE}
OF_MAKE = [each for page in pages() for each in (*commands(page), *inline_commands(page)) if target_of(each)]
# The recipe of a target is the same wherever a page names it, and with any variables.
MAKE = {target_of(each): each for each in OF_MAKE if "…" not in target_of(each)}
VARIABLES = {name: each for each in OF_MAKE for name in re.findall(r"\b([A-Z_]+)=", each.text.partition("#")[0])}
OURS = {
    each.text: each for page in pages() for each in inline_commands(page) if each.text.startswith("tfjob-controller ")
}
TEXTS = [
    (page, block)
    for page in pages()
    for block in blocks((ROOT / page).read_text("utf-8"))
    if block.language in ("", "text") and not is_command_block(block)
]
# What a reader's shell has in the test that runs all others (helpers/docsshell.py), beside what bash has itself.
PROVIDED = ("kubectl", "tfjob-controller", ".venv/bin/tfjob-controller", "python", "source", "for", "cd", "cp", "mkdir")


def place(command: Command) -> str:
    return f"{command.page}:{command.line}"


@pytest.mark.parametrize("program", HERE_BY_PROGRAM)
def test_what_no_other_test_runs_can_be_run_by_the_common_one(program: str) -> None:
    assert program in PROVIDED, (
        f"{HERE_BY_PROGRAM[program].place}: "
        "name a test in test/helpers/docselsewhere.py, or say there why none can run it"
    )


def test_what_no_other_test_runs_can_be_typed() -> None:
    """If a command cannot, test/helpers/docspages.py has the replacement."""
    assert [each.place for each in HERE if "…" in each.text] == []


@pytest.mark.parametrize("claim", [*ELSEWHERE, *TARGETS], ids=lambda each: getattr(each, "name", "") or each.pattern)
def test_a_test_that_is_said_to_run_a_command_is_there(claim: Elsewhere | Target) -> None:
    assert bool(claim.test) == bool(claim.words)
    assert claim.test or claim.why
    if claim.test:
        assert claim.words in (ROOT / claim.test).read_text("utf-8"), f"{claim.test} does not say {claim.words}"


@pytest.mark.parametrize("claim", ELSEWHERE, ids=lambda each: each.pattern)
def test_no_exception_outlives_its_command(claim: Elsewhere) -> None:
    assert [each for each in ALL if claim_on(each) is claim], "no page has such a command any more: take the entry away"


@pytest.mark.parametrize(("page", "given"), PAGES.items(), ids=lambda each: each if isinstance(each, str) else "")
def test_what_a_page_is_given_is_what_it_needs(page: str, given: Page) -> None:
    texts = [each.text for each in HERE if each.page == page]
    assert texts, f"{page} has no commands: take it away from test/helpers/docspages.py"
    for old in given.replaced:
        assert any(old in text for text in texts), f"no command of {page} has {old!r}"


@pytest.mark.parametrize("command", MAKE.values(), ids=place)
def test_a_target_of_make_that_a_page_names_runs_what_its_test_runs(command: Command) -> None:
    target = claim_on(command)
    assert isinstance(target, Target), f"{command.place}: name its test in test/helpers/docselsewhere.py"
    # -o: never make .venv anew here, which the tests run from. A placeholder is no argument.
    words = command.text.partition("#")[0].replace("…", "x").split(maxsplit=1)[1]
    recipe = printed(f"make --dry-run -o .venv/.ready-local -o .venv/.ready-dev {words}")
    assert f"-m {target.module}" in recipe if target.module else recipe


@pytest.mark.parametrize("name", VARIABLES)
def test_a_variable_that_a_page_gives_to_make_is_one_that_is_read(name: str) -> None:
    text = (ROOT / "Makefile").read_text() + "".join(path.read_text() for path in (ROOT / "hack").rglob("*.py"))
    found = re.search(rf"\$\({name}\)|[\"']{name}[\"']|\b{name}=", text)
    assert found, f"{VARIABLES[name].place}: nobody reads {name}"


@pytest.mark.parametrize("command", OURS.values(), ids=place)
def test_what_the_text_says_of_our_own_programs_is_a_command_with_flags_that_there_are(command: Command) -> None:
    words = shlex.split(command.text)[1:]
    flags = [word.partition("=")[0] for word in words if word.startswith("--")]
    names = [word for word in words if word.isalpha() and word.islower()]
    text = help_of(*names)
    assert [flag for flag in flags if f"{flag} " not in text and f"{flag}," not in text] == [], command.place


@functools.cache
def help_of(*names: str) -> str:
    """What `tfjob-controller NAMES --help` prints, in which a flag is followed by a blank or a comma."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), pytest.raises(SystemExit, match="0"):
        build_parser().parse_args([*names, "--help"])
    return out.getvalue().replace("\n", " ").replace("=", " ")


@pytest.mark.parametrize(("page", "block"), TEXTS, ids=lambda each: each.line if isinstance(each, Block) else each)
def test_a_block_that_is_taken_for_text_hides_no_command(page: str, block: Block) -> None:
    hidden = [line for line in block.lines if line.startswith("$ ") or line.split(" ")[0] in PROGRAMS]
    assert not hidden, f"{page}:{block.line}: say its language: ```sh or ```console"


def printed(line: str) -> str:
    done = subprocess.run(
        ["bash", "-c", line],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
