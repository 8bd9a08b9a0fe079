"""Translates pip's settings for uv.

uv reads neither pip.conf nor the PIP_ variables. A machine that needs an index, a proxy or a certificate of its own is
usually configured for pip, so uv is started with the same settings. A variable of uv that is already set wins.
"""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

# Later sections override earlier ones, as they do in pip: `pip install` reads its own section after the global one.
_SECTIONS = ("global", "install", ":env:")
_TRUE = ("1", "true", "yes", "on", "y", "t")
# The variables of uv that hold a list, with the separator that uv expects.
_LISTS = {
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "trusted-host": ("UV_INSECURE_HOST", " "),
}
_WORDS = {
    "index-url": ("UV_DEFAULT_INDEX",),
    "cert": ("SSL_CERT_FILE",),
    "client-cert": ("SSL_CLIENT_CERT",),
    "proxy": ("HTTPS_PROXY", "HTTP_PROXY"),
    "default-timeout": ("UV_HTTP_TIMEOUT",),
    "timeout": ("UV_HTTP_TIMEOUT",),
}


@dataclass(frozen=True, slots=True)
class UvSettings:
    """What uv is started with: variables that are added to its environment, and further arguments."""

    variables: Mapping[str, str]
    arguments: tuple[str, ...]


def read(python: str | Path) -> dict[str, str]:
    """Returns the settings of that Python's pip; none if it has no pip."""
    done = subprocess.run([python, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False)
    return parse(done.stdout) if done.returncode == 0 else {}


def parse(listing: str) -> dict[str, str]:
    """Returns the settings that hold for `pip install`, from the output of `pip config list`."""
    sections: dict[str, dict[str, str]] = {section: {} for section in _SECTIONS}
    for line in listing.splitlines():
        key, _, value = line.partition("=")
        section, _, option = key.rpartition(".")
        if section in sections:
            sections[section][option] = str(ast.literal_eval(value))
    return {option: value for found in sections.values() for option, value in found.items()}


def for_uv(settings: Mapping[str, str], environment: Mapping[str, str]) -> UvSettings:
    """Returns the same settings for uv. Variables that `environment` has already are left out."""
    # Hashes decide which files are taken, so the index that a file comes from does not matter; pip asks all of them.
    variables = {"UV_INDEX_STRATEGY": "unsafe-best-match"}
    for option, names in _WORDS.items():
        if value := settings.get(option):
            variables |= dict.fromkeys(names, value)
    for option, (name, separator) in _LISTS.items():
        if values := settings.get(option, "").split():
            variables[name] = separator.join(values)
    no_index = settings.get("no-index", "").lower() in _TRUE
    return UvSettings(_without(variables, environment), ("--no-index",) if no_index else ())


def _without(variables: Mapping[str, str], known: Iterable[str]) -> dict[str, str]:
    # Proxies are usually named in lower case.
    present = {name.upper() for name in known}
    return {name: value for name, value in variables.items() if name not in present}
