"""What a browser would fetch from elsewhere to show the site: nothing, or the site is of no use without a network.

Links that a reader may follow are no matter here.
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
    """`page: address` of each."""
    for path in sorted(site.rglob("*")):
        loaded = _LOADED.get(path.suffix)
        if loaded is not None:
            for address in loaded.findall(path.read_text("utf-8")):
                yield f"{path.relative_to(site)}: {address}"
