"""Finds credentials among the files of the tree, by the prefixes that their issuers use."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

# A line that holds this word is known to hold none that opens anything; a reason stands beside it.
ALLOWED = "not-a-secret"
_FOLDERS = (".ci", "docs", "hack", "manifests", "src", "test")
_LARGEST_BYTES = 2_000_000
_KINDS = {
    "private key": rb"-----BEGIN (?:[A-Z]+ )?PRIVATE KEY-----\s+[A-Za-z0-9+/=\s]{64}",
    "AWS access key": rb"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    "GitHub token": rb"\b(?:gh[pousr]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9_]{50,})",
    "Hugging Face token": rb"\bhf_[A-Za-z0-9]{34}\b",
    "Slack token": rb"\bxox[abpr]-[A-Za-z0-9-]{20,}",
    "Google API key": rb"\bAIza[0-9A-Za-z_-]{35}\b",
    "package index token": rb"\bpypi-[A-Za-z0-9_-]{60,}",
    "JSON web token": rb"\beyJ[A-Za-z0-9_-]{20,}\.eyJ[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{20,}",
    "Kubernetes bearer token in a kubeconfig": rb"(?m)^\s+token: [A-Za-z0-9._-]{40,}$",
}
_PATTERNS = {kind: re.compile(pattern) for kind, pattern in _KINDS.items()}


def in_tree(root: Path) -> list[str]:
    """Returns a line for each match in a file that git tracks, or would add; it names the place without the content."""
    names = _files(root)
    return [f"{name}:{found}" for name in names for found in _in_file(root / name)]


def _files(root: Path) -> list[str]:
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):  # an unpacked archive has no repository
        found = [*root.glob("*"), *(path for folder in _FOLDERS for path in (root / folder).rglob("*"))]
        return sorted(str(path.relative_to(root)) for path in found)
    return sorted(name for name in done.stdout.decode().split("\0") if name)


def _in_file(path: Path) -> Iterator[str]:
    try:
        if path.is_symlink() or path.stat().st_size > _LARGEST_BYTES:
            return
        yield from in_bytes(path.read_bytes())
    except OSError:  # a folder, or gone since
        return


def in_bytes(content: bytes) -> Iterator[str]:
    """Yields `line: kind` for each match."""
    for kind, pattern in _PATTERNS.items():
        for match in pattern.finditer(content):
            begin = content.rfind(b"\n", 0, match.start()) + 1
            end = content.find(b"\n", match.end())
            number = content.count(b"\n", 0, match.start()) + 1
            if ALLOWED.encode() not in content[begin : end if end >= 0 else None]:
                yield f"{number}: looks like a {kind}: take it away, and out of use"
