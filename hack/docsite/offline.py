"""Finds resources that a browser would load from other sites: there must be none, since the site is used offline.

Links for readers are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

_ELSEWHERE = r"(?:[a-z]+:)?//[^\"'\s)>]+"
_LOADED = {
    ".html": re.compile(rf"<(?:script|link|img|iframe|source|object)\b[^>]*\b(?:src|href|data)=[\"']({_ELSEWHERE})"),
    ".css": re.compile(rf"(?:@import\s+|url\()\s*[\"']?({_ELSEWHERE})"),
    ".svg": re.compile(rf"<(?:image|use|style)\b[^>]*href=[\"']({_ELSEWHERE})"),
}


def fetched_from_elsewhere(site: Path) -> Iterator[str]:
    """Yields `page: address` of each such resource."""
    for path in sorted(site.rglob("*")):
        loaded = _LOADED.get(path.suffix)
        if loaded is not None:
            for address in loaded.findall(path.read_text("utf-8")):
                yield f"{path.relative_to(site)}: {address}"
