"""The page on troubleshooting quotes what the programs say: each quotation must still be in their source."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from helpers.docs import DOCS

SOURCE = DOCS.parent / "src" / "tfjob_controller"
PAGE = (DOCS / "troubleshooting.md").read_text("utf-8")
# What Kubernetes says, and names of its making.
FOREIGN = (
    "Unschedulable",
    "nodes available",
    "exceeded quota",
    "FailedMount",
    "FailedAttachVolume",
    "FailedCreatePodSandBox",
    "is invalid",
    'no matches for kind "TFJob"',
    "dataset-initializer-",
    "model-initializer-",
    '" cannot create resource "tfjobs"',
    'unknown field "spec',
    'forbidden: User "',
)
ANY = "\0"
# Where a sentence is put together of others, it may be cut between two words so often.
PIECES = 3


def quotations() -> list[str]:
    """What stands between backticks in the first cell of each row of the tables that quote."""
    tables = re.findall(r"^\| message \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    cells = (row.split(" | ")[0] for table in tables for row in table.splitlines())
    return sorted({words for cell in cells for words in re.findall(r"`([^`]+)`", cell)})


def fragments(quotation: str) -> list[str]:
    """Figures are filled in, too."""
    return [each for part in re.split(r"…|\b\d+\b", quotation) if (each := part.strip(" :;.()"))]


def is_said(words: str, pieces: int = PIECES) -> bool:
    """Whether strings of the source, put one behind the other, can come to these words."""
    if words in said():
        return True
    cuts = [match.start() for match in re.finditer(" ", words)] if pieces > 1 else []
    return any(words[:cut].strip(" :") in said() and is_said(words[cut + 1 :], pieces - 1) for cut in reversed(cuts))


@cache
def said() -> str:
    """Every string of the source that is no docstring, with what is filled in later as `ANY`, one a line."""
    trees = [ast.parse(path.read_text("utf-8")) for path in sorted(SOURCE.rglob("*.py"))]
    docs = {node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return "\n".join(text for tree in trees for node in ast.walk(tree) if node not in docs and (text := _text(node)))


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value.replace("{}", ANY).replace("\n", " ")
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) or ANY for part in node.values)
    return ""


def test_what_the_page_quotes_is_what_a_program_says() -> None:
    """The page quotes in the words of the code, with … for what is filled in."""
    parts = [part for quotation in quotations() for part in fragments(quotation)]
    assert len(quotations()) > 30
    assert [part for part in parts if part not in FOREIGN and not is_said(part)] == []


@pytest.mark.parametrize("words", ["no pud after", "it is being reheated", "cannot create Jub"])
def test_what_no_program_says_is_found_out(words: str) -> None:
    assert not is_said(words)


def test_nothing_foreign_is_excused_in_vain() -> None:
    assert {each for each in FOREIGN if each not in PAGE} == set()


def test_every_symptom_has_a_section() -> None:
    text = PAGE.lower().replace(",", "")
    links = re.findall(r"^\|.*\]\(#([\w-]+)\) \|?$", PAGE, re.MULTILINE)
    assert links
    assert [link for link in links if f"\n## {link.replace('-', ' ')}\n" not in text] == []
