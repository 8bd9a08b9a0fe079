"""Converts pages that are written for a forge: adds a navigation tree, and rewrites links.

docs/README.md is the home page here and there. Its sections are the navigation's; a nested entry is below the one
before it. Where a folder's README.md is an entry, the folder's other pages are below that.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

_SECTION = re.compile(r"^## (.+)$")
_ENTRY = re.compile(r"^(\s*)- \[[^\]]*\]\(([^)#\s]+\.md)\)")
_LINK = re.compile(r"\[([^\]]*)\]\(([^)#\s]+)\)")


@dataclass(frozen=True, slots=True)
class Entry:
    """A page in the navigation: its section, and the page that it stands below (none: the section itself)."""

    section: str
    page: Path
    parent: Path | None


@dataclass(frozen=True, slots=True)
class Branch:
    """Pages below a page, relative to it, under a heading of their own or none."""

    heading: str
    pages: tuple[str, ...]


def entries(home: Path) -> list[Entry]:
    found: list[Entry] = []
    section, parent = "", None
    for line in home.read_text("utf-8").splitlines():
        if heading := _SECTION.match(line):
            section = heading[1]
        elif entry := _ENTRY.match(line):
            page = _normal(home.parent / entry[2])
            parent = parent if entry[1] else page
            found.append(Entry(section, page, parent if entry[1] else None))
    return [each for entry in found for each in (entry, *_folder(entry, home.name))]


def branches(home: Path, page: Path) -> list[Branch]:
    """What stands below a page of the site; nothing below most."""
    parent = None if page == home else page
    below = [each for each in entries(home) if each.parent == parent]
    return [
        Branch("" if parent else section, _relative(pages, page.parent))
        for section, pages in groupby(below, key=lambda each: each.section)
    ]


def with_branches(text: str, found: Iterable[Branch]) -> str:
    """The page with its branches as MyST writes them: seen in the navigation, and not in the text."""
    return "".join((text, *map(_toctree, found)))


def without_folders(text: str, folder: Path) -> str:
    """A forge lists a folder that is linked to. A site has nothing to show there, so the link's words alone stay."""
    return _LINK.sub(lambda link: link[1] if (folder / link[2]).is_dir() else link[0], text)


def _toctree(branch: Branch) -> str:
    caption = (f":caption: {branch.heading}",) if branch.heading else ()
    return "\n".join(("", "```{toctree}", ":hidden:", *caption, "", *branch.pages, "```", ""))


def _folder(entry: Entry, index: str) -> list[Entry]:
    if entry.page.name != index:
        return []
    pages = sorted(path for path in entry.page.parent.glob("*.md") if path.name != index)
    return [Entry(entry.section, page, entry.page) for page in pages]


def _relative(below: Iterable[Entry], folder: Path) -> tuple[str, ...]:
    return tuple(os.path.relpath(each.page, folder) for each in below)


def _normal(path: Path) -> Path:
    return Path(os.path.normpath(path))
