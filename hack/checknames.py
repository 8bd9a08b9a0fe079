"""Checks that one concept has one name: a public class name is defined once in `src`.

`python hack/checknames.py` exits with 1 and names each one that is defined again.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]


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


def main() -> int:
    paths = sorted((_ROOT / "src").rglob("*.py"))
    problems = list(duplicate_classes({str(path.relative_to(_ROOT)): path.read_text("utf-8") for path in paths}))
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
