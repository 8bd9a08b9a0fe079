"""The rules of the site's navigation."""

from __future__ import annotations

from pathlib import Path

import pytest

from docsite.navigation import Branch, branches, with_branches, without_folders

HOME = """# Docs

## Start

- [First](first.md): a page
  - [Below](below.md)
  - [Elsewhere](../TOP.md)
- [Second](second.md)

## Operate

- [Runbooks](runbooks/README.md), and a [link](first.md) in the text
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    page = tmp_path / "docs" / "README.md"
    (page.parent / "runbooks").mkdir(parents=True)
    for name in ("README", "B", "A"):
        (page.parent / "runbooks" / f"{name}.md").touch()
    page.write_text(HOME)
    return page


@pytest.mark.parametrize(
    ("page", "below"),
    [
        pytest.param(
            "README.md",
            [Branch("Start", ("first.md", "second.md")), Branch("Operate", ("runbooks/README.md",))],
            id="sections stand below the home page",
        ),
        pytest.param(
            "first.md", [Branch("", ("below.md", "../TOP.md"))], id="nested entries stand below the one before"
        ),
        pytest.param("second.md", [], id="nothing stands below most"),
        pytest.param(
            "runbooks/README.md", [Branch("", ("A.md", "B.md"))], id="the pages of a folder stand below its own"
        ),
        pytest.param("runbooks/A.md", [], id="nor below its pages"),
    ],
)
def test_the_home_page_is_the_navigation(home: Path, page: str, below: list[Branch]) -> None:
    assert branches(home, home.parent / page) == below


def test_a_page_keeps_its_text_and_gets_its_branches() -> None:
    text = with_branches("text\n", [Branch("Start", ("a.md",)), Branch("", ("b.md",))])
    assert text.startswith("text\n\n```{toctree}\n:hidden:\n:caption: Start\n\na.md\n```\n")
    assert text.endswith("\n```{toctree}\n:hidden:\n\nb.md\n```\n")


def test_a_link_to_a_folder_is_its_words_and_others_stay(home: Path) -> None:
    text = "[pages](runbooks), [one](runbooks/A.md), [none](nowhere), [site](https://example.com/)"
    assert without_folders(text, home.parent) == text.replace("[pages](runbooks)", "pages")
