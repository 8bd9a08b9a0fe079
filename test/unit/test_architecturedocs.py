"""docs/architecture.md names functions file by file: each is there, in a module of that name."""

from __future__ import annotations

import ast
import re
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
SOURCE = REPOSITORY / "src/tfjob_controller"
PAGE = (REPOSITORY / "docs/architecture.md").read_text("utf-8")
# `module.Class.method`, `module.function` or `folder/module.function`, and what goes on with `, other`.
NAMED = re.compile(r"\b(?:[a-z]+/)?([a-z]+)\.([A-Za-z_]+)(?:\.([A-Za-z_]+))?((?:, _?[a-z_]+(?= |,|$))*)", re.MULTILINE)


def definitions(path: Path) -> set[str]:
    """`function`, `Class` and `Class.method`."""
    found: set[str] = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{each.name}" for each in node.body if isinstance(each, ast.FunctionDef)}
    return found


def names() -> list[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    for block in re.findall(r"```text\n(.*?)```", PAGE, flags=re.DOTALL):
        for match in NAMED.finditer(block):
            module, first, second, more = match.groups()
            if module == "handler":  # any of them
                continue
            found.add((module, f"{first}.{second}" if second else first))
            owner = f"{first}." if second else ""
            found |= {(module, f"{owner}{name}") for name in more.split(", ")[1:]}
    return sorted(found)


def test_the_functions_that_the_page_names_exist() -> None:
    assert len(names()) > 30
    defined = {module: [definitions(path) for path in SOURCE.rglob(f"{module}.py")] for module, _ in names()}
    assert [f"{module}.{name}" for module, name in names() if not any(name in own for own in defined[module])] == []
