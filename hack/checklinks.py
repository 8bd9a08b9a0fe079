"""Finds dead links in Markdown: files that do not exist, headings that do not exist. Other sites are not asked.

    python hack/checklinks.py README.md docs

Prints `file:line: link: what is wrong` for each, and ends with exit code 1 if there was one.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import unquote

# [text](target "title"), ![image](target), and reference definitions `[label]: target`.
_INLINE = re.compile(r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
_REFERENCE = re.compile(r"^\s{0,3}\[[^\]]+\]:\s+<?([^\s>]+)>?")
_HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$")
_ANCHOR = re.compile(r"<a\s+(?:id|name)=\"([^\"]+)\"")
_FENCE = re.compile(r"^\s*(```|~~~)")
_CODE = re.compile(r"`[^`]*`")
_OTHER_SITE = re.compile(r"^(?:[a-z][a-z0-9+.-]*:|//)", re.IGNORECASE)


def main(arguments: list[str]) -> int:
    dead = [f"{path}:{line}: {words}" for path in _markdown(arguments) for line, words in dead_links(path)]
    for words in dead:
        print(words)
    return 1 if dead else 0


def dead_links(path: Path) -> Iterator[tuple[int, str]]:
    """(line, what is wrong) for each dead link of a file."""
    for number, line in prose(path):
        text = _CODE.sub("", line)
        for target in [*_INLINE.findall(text), *_REFERENCE.findall(text)]:
            if not _OTHER_SITE.match(target) and (wrong := _wrong(path, target)):
                yield number, f"{target}: {wrong}"


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """The numbered lines that are no code."""
    fence = ""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        mark = _FENCE.match(line)
        if mark and not fence:
            fence = mark.group(1)
        elif mark and mark.group(1) == fence:
            fence = ""
        elif not fence:
            yield number, line


def anchors(path: Path) -> set[str]:
    """What a file's headings can be linked by, as GitHub makes it, numbered where a heading comes twice."""
    found: set[str] = set()
    for _, line in prose(path):
        found.update(_ANCHOR.findall(line))
        heading = _HEADING.match(line)
        if heading:
            found.add(_unused(slug(heading.group(1)), found))
    return found


def slug(heading: str) -> str:
    """Lower case, words joined by dashes, no punctuation; links and code are their text."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", text.lower()).strip().replace(" ", "-")


def _unused(name: str, taken: set[str]) -> str:
    candidate, number = name, 0
    while candidate in taken:
        number += 1
        candidate = f"{name}-{number}"
    return candidate


def _wrong(path: Path, target: str) -> str:
    """What is wrong with a link in `path`, "" if nothing is."""
    file, _, fragment = unquote(target).partition("#")
    linked = (path.parent / file) if file else path
    if not linked.exists():
        return "no such file"
    if fragment and linked.suffix == ".md" and fragment not in anchors(linked):
        return "no such heading"
    return ""


def _markdown(arguments: Iterable[str]) -> Iterator[Path]:
    for argument in map(Path, arguments):
        if argument.is_dir():
            yield from sorted(argument.rglob("*.md"))
        elif argument.exists():
            yield argument


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
