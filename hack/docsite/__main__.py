"""`python -m docsite` builds the site of docs/ in build/site. A warning, such as a dead link, fails the build."""

from __future__ import annotations

import sys
from pathlib import Path

from sphinx.cmd.build import build_main

from docsite.offline import fetched_from_elsewhere

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "build" / "site"

# All pages are read again, since the position of a page in the navigation is defined in another page.
STRICT = ("--fresh-env", "--fail-on-warning", "--keep-going", "--quiet")


def main() -> int:
    settings = ("--conf-dir", str(Path(__file__).parent), "--doctree-dir", str(SITE.with_name("site.doctrees")))
    if code := build_main([*STRICT, *settings, str(ROOT), str(SITE)]):
        print("the site is not good: mend what is named above", file=sys.stderr)
        return code
    if fetched := list(fetched_from_elsewhere(SITE)):
        print("fetched from elsewhere:", *fetched, sep="\n", file=sys.stderr)
        return 1
    print(f"open {SITE.relative_to(ROOT)}/index.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
