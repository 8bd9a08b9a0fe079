"""hack/checknames.py finds duplicate class names and retired words."""

from __future__ import annotations

from pathlib import Path

import pytest

from checknames import GLOSSARY, duplicate_classes, problems, retired_words, uses

TABLE = """
## Retired words

| retired | term |
|---|---|
| seat, seats | assignment |
| made anew | recreated |
"""


def test_a_public_class_name_is_defined_once() -> None:
    sources = {"a.py": "class Gate: ...\nclass _Own: ...", "b.py": "\nclass Gate: ...", "c.py": "class _Own: ..."}
    assert list(duplicate_classes(sources)) == ["class Gate is defined 2 times: a.py:1, b.py:2"]


def test_the_glossary_names_the_retired_words_and_their_terms() -> None:
    assert retired_words(TABLE) == {"seat": "assignment", "seats": "assignment", "made anew": "recreated"}
    assert retired_words("# Glossary\n") == {}


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("the seat of a pod", ["seat"]),
        ("free_seats = Seat()", ["seat", "seats"]),
        ("class HTTPSeat:", ["seat"]),
        ("children are made anew.", ["made anew"]),
        ("seated, seating; anew", []),
    ],
)
def test_a_retired_word_is_found_in_prose_and_in_identifiers(line: str, found: list[str]) -> None:
    lines = list(uses(f"first\n{line}", retired_words(TABLE)))
    assert [each.split("“")[1].split("”")[0] for each in lines] == found
    assert all(each.startswith("2: ") for each in lines)


def test_the_whole_project_is_searched_but_for_the_glossary(tmp_path: Path) -> None:
    for name, text in {
        GLOSSARY: TABLE,
        "src/a/b.py": "seat = 1\n",
        "manifests/x.yaml": "# seats\n",
        "README.md": "made\nanew\n",
        "CONTRIBUTING.md": "made anew",
        "test/test_a.py": "seat = 1\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert [each.split(": ")[0] for each in problems(tmp_path)] == [
        "src/a/b.py:1",
        "manifests/x.yaml:1",
        "CONTRIBUTING.md:1",
    ]
