"""Checks that one concept has one name: `python hack/checknames.py` exits with 1 and names each place that breaks it.

Two rules hold. A public class name is defined once in `src`. No file of `src`, `docs` or `manifests` contains a word
that the table "Retired words" of docs/glossary.md lists. A word is found in identifiers, too: `seat` is found in
`free_seat` and in `SeatCount`.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
GLOSSARY = "docs/glossary.md"
_HEADING = "## Retired words"
_SEARCHED = ("src", "docs", "manifests", "README.md", "CONTRIBUTING.md")
_SUFFIXES = (".py", ".md", ".yaml")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def duplicate_classes(sources: Mapping[str, str]) -> Iterator[str]:
    """One line for each public class name that several modules, or one module twice, define. Takes path → source."""
    places = defaultdict(list)
    for path, source in sources.items():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(f"{path}:{node.lineno}")
    for name, found in sorted(places.items()):
        if len(found) > 1:
            yield f"class {name} is defined {len(found)} times: {', '.join(found)}"


def retired_words(glossary: str) -> dict[str, str]:
    """Returns each retired word or phrase with its replacement, from the first two columns of the table."""
    _, _, section = glossary.partition(f"\n{_HEADING}\n")
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("|")
    ]
    return {word.strip().lower(): row[1] for row in rows[2:] for word in row[0].split(",")}


def uses(text: str, retired: Mapping[str, str]) -> Iterator[str]:
    """Yields a line for each use of a retired word in a text: the line's number, the word, and its replacement."""
    for number, line in enumerate(text.splitlines(), start=1):
        words = f" {' '.join(_WORD.findall(line)).lower()} "
        for word, instead in retired.items():
            if f" {word} " in words:
                yield f"{number}: “{word}” is retired; the term is {instead}"


def _texts(root: Path) -> Iterator[tuple[str, str]]:
    for each in _SEARCHED:
        found: Iterable[Path] = (root / each).rglob("*") if (root / each).is_dir() else [root / each]
        for path in sorted(found):
            name = path.relative_to(root).as_posix()
            if path.suffix in _SUFFIXES and path.is_file() and name != GLOSSARY:
                yield name, path.read_text(encoding="utf-8")


def problems(root: Path) -> list[str]:
    """Returns every violation of the two rules below `root`, with the place."""
    texts = dict(_texts(root))
    retired = retired_words((root / GLOSSARY).read_text(encoding="utf-8"))
    sources = {path: text for path, text in texts.items() if path.startswith("src/") and path.endswith(".py")}
    return [
        *duplicate_classes(sources),
        *(f"{path}:{use}" for path, text in texts.items() for use in uses(text, retired)),
    ]


def main() -> int:
    found = problems(_ROOT)
    for each in found:
        print(each, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
