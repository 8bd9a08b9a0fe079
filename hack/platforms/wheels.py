"""Resolves the requirements of setup.cfg to wheels for platforms other than this one.

uv resolves for a platform and a Python that need not be there. It takes wheels only, so an answer means that `pip
install` compiles nothing. The wheels are not downloaded, and nothing is run: that they work is their authors' promise.
"""

from __future__ import annotations

import configparser
import itertools
import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
UV = REPOSITORY / ".venv" / "bin" / "uv"
# By uv's names (`uv pip compile --help`, --python-platform).
PLATFORMS = {
    "Windows, x86-64": "x86_64-pc-windows-msvc",
    "macOS, arm64": "aarch64-apple-darwin",
    "macOS, x86-64": "x86_64-apple-darwin",
    "Linux, x86-64": "x86_64-unknown-linux-gnu",
    "Linux, arm64": "aarch64-unknown-linux-gnu",
    "Linux with musl (Alpine), x86-64": "x86_64-unknown-linux-musl",
}
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
BASE = ""
EXTRAS = (BASE, "dashboard", "operator")
_MISSING = re.compile(r"(?:Wheels are required for|found wheels for) `([A-Za-z0-9._-]+)`")
# A local folder of wheels would answer for the index, with what was built on this machine.
_LOCAL_WHEELS = ("PIP_FIND_LINKS", "UV_FIND_LINKS")
_TIMEOUT_SECONDS = 300
_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Outcome:
    """`missing` is empty if all wheels exist, else the package that has none, or uv's last line."""

    platform: str
    python: str
    extra: str
    missing: str = ""


def requirements(setup: Path, extra: str = BASE) -> list[str]:
    """Returns the requirements of the package, with those of one extra."""
    config = configparser.ConfigParser()
    config.read(setup, encoding="utf-8")
    lines = config.get("options", "install_requires").splitlines()
    if extra:
        lines += config.get("options.extras_require", extra).splitlines()
    return [line.strip() for line in lines if line.strip() and not line.strip().startswith("#")]


def resolve_all(setup: Path, platforms: Sequence[str], pythons: Sequence[str]) -> Iterator[Outcome]:
    """Yields an outcome per platform (a key of PLATFORMS), Python and extra, in this order; asks the package index.

    Some run at a time, since each mostly waits for the index.
    """

    def outcome(cell: tuple[str, str, str]) -> Outcome:
        platform, python, extra = cell
        return Outcome(platform, python, extra, resolve(requirements(setup, extra), PLATFORMS[platform], python))

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        yield from pool.map(outcome, itertools.product(platforms, pythons, EXTRAS))


def resolve(wanted: Sequence[str], triple: str, python: str) -> str:
    """Returns what has no wheel there; an empty text if everything has one."""
    command = [str(UV), "pip", "compile", "--quiet", "--no-header", "--only-binary=:all:", "--no-annotate"]
    command += [f"--python-platform={triple}", f"--python-version={python}", "-"]
    variables = {name: value for name, value in os.environ.items() if name not in _LOCAL_WHEELS}
    done = subprocess.run(
        command,
        input="\n".join(wanted),
        capture_output=True,
        text=True,
        check=False,
        timeout=_TIMEOUT_SECONDS,
        env=variables,
    )
    return "" if done.returncode == 0 else missing_of(done.stderr)


def missing_of(error: str) -> str:
    """Returns the package that uv found no wheel of, by its message; else the message's last line."""
    found = _MISSING.search(error)
    return found[1] if found else (error.strip().splitlines() or ["uv said nothing"])[-1]


def table(outcomes: Sequence[Outcome]) -> list[str]:
    """Returns a table in Markdown: platforms by extras, each cell with its Pythons."""
    lines = ["| platform | " + " | ".join(f"`[{each}]`" if each else "base" for each in EXTRAS) + " |"]
    lines.append("|---" * (len(EXTRAS) + 1) + "|")
    for platform in dict.fromkeys(each.platform for each in outcomes):
        cells = [
            _cell([each for each in outcomes if (each.platform, each.extra) == (platform, extra)]) for extra in EXTRAS
        ]
        lines.append(f"| {platform} | {' | '.join(cells)} |")
    return lines


def _cell(outcomes: Sequence[Outcome]) -> str:
    found = [each.python for each in outcomes if not each.missing]
    missing = sorted({each.missing for each in outcomes if each.missing})
    words = [_ranged(found)] if found else []
    if missing:
        words.append(f"no wheels of {', '.join(missing)}" + (f" for {_ranged(_failed(outcomes))}" if found else ""))
    return "; ".join(words)


def _failed(outcomes: Sequence[Outcome]) -> list[str]:
    return [each.python for each in outcomes if each.missing]


def _ranged(pythons: Sequence[str]) -> str:
    """3.11 to 3.14 instead of all four."""
    first, last = PYTHONS.index(pythons[0]), PYTHONS.index(pythons[-1])
    is_whole = last - first + 1 == len(pythons) > 2
    return f"{pythons[0]} to {pythons[-1]}" if is_whole else ", ".join(pythons)
