"""`python -m release VERSION [COMMIT]` records a release; without arguments it compares the CRDs with all releases.

See docs/releasing.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from localcluster.errors import LocalClusterError
from release.crds import Verdict, incompatibilities, judge
from release.records import Release, documents, exceptions, releases
from release.snapshot import RELEASES, ROOT, ReleaseError, take

CRDS = ROOT / "manifests" / "base" / "crds"


def present_crds(folder: Path = CRDS) -> list[dict[str, Any]]:
    return [each for path in sorted(folder.glob("*.yaml")) for each in documents(path)]


def verdict_on(release: Release, crds: list[dict[str, Any]]) -> Verdict:
    return judge(incompatibilities(release.crds, crds), exceptions(release.version))


def record(version: str, commit: str) -> None:
    folder = RELEASES / version
    if folder.exists():
        raise ReleaseError(f"{folder.relative_to(ROOT)} is there: a release is never changed; remove it if it was none")
    files = take(version, commit)
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    print(folder.relative_to(ROOT))


def complaints() -> Iterator[str]:
    for release in releases():
        verdict = verdict_on(release, present_crds())
        yield from (f"since {release.version}: {each}" for each in verdict.unwanted)
        yield from (f"exceptions.yaml, {release.version}: nothing breaks so: {each}" for each in verdict.needless)


def main() -> int:
    parser = argparse.ArgumentParser(prog="release", description=__doc__)
    parser.add_argument("version", nargs="?", help="as in setup.cfg; without it, the CRDs are judged")
    parser.add_argument("commit", nargs="?", default="HEAD", help="what is released (default: HEAD)")
    given = parser.parse_args()
    try:
        if given.version:
            record(given.version, given.commit)
            return 0
    except (ReleaseError, LocalClusterError) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    found = list(complaints())
    print("\n".join(found) or "the CRDs of this tree accept all that released ones accepted", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
