"""docs/security.md: each threat is numbered, and says what stops it and which tests show that; the tests exist."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

from helpers.docs import DOCS

TESTS = Path(__file__).resolve().parents[1]
PAGE = (DOCS / "security.md").read_text("utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in PAGE.splitlines()
    if re.match(r"\| \d+ \|", line)
]
NAMED = re.compile(r"`([\w/]+\.py)::(test_\w+)`")


@functools.cache
def functions_of(path: str) -> frozenset[str]:
    """Returns the functions and methods of a test module; none if it does not exist."""
    if not (TESTS / path).is_file():
        return frozenset()
    nodes = ast.walk(ast.parse((TESTS / path).read_text("utf-8")))
    return frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_rows_are_numbered_from_one_on() -> None:
    assert [row[0].strip("| ") for row in ROWS] == [str(number) for number in range(1, len(ROWS) + 1)]


def test_a_threat_says_what_stops_it_and_names_tests_that_exist() -> None:
    for number, threat, stopped_by, tests in ROWS:
        assert threat, number
        assert stopped_by, number
        named = NAMED.findall(tests)
        assert named, number
        assert NAMED.sub("", tests).strip(" ,|") == "", number
        assert [f"{path}::{test}" for path, test in named if test not in functions_of(path)] == [], number


def test_every_security_test_stands_on_the_page() -> None:
    """So that what is mended there is also told."""
    named = {path for path, _ in NAMED.findall(PAGE)}
    written = {str(path.relative_to(TESTS)) for path in TESTS.rglob("test_security_*.py")}
    assert written <= named
