"""What commands print: JSON and YAML for programs, tables for people. Heavy parts are loaded when they are used."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import Any

from tfjob_controller.kubectl.arguments import JSON, YAML

# Below these many seconds an age is said in the unit before.
_UNITS = ((120, 1, "s"), (7200, 60, "m"), (172800, 3600, "h"))


def print_value(value: Any, output: str) -> int:
    """A value that msgspec can encode, as JSON or YAML; returns the exit code."""
    import msgspec

    body = msgspec.json.encode(value)
    if output == JSON:
        print(msgspec.json.format(body, indent=2).decode())
    else:
        print(in_yaml(msgspec.json.decode(body)), end="")
    return 0


def is_for_programs(output: str) -> bool:
    return output in (JSON, YAML)


def in_yaml(value: Any) -> str:
    import yaml

    return str(yaml.dump(value, Dumper=yaml.CSafeDumper, sort_keys=False, default_flow_style=False, width=120))


def say(words: str) -> None:
    """To the person, beside the answer."""
    print(words, file=sys.stderr)


def screen() -> Any:
    """A `Screen` on standard output."""
    from tfjob_controller.kubectl.screen import Screen

    return Screen(sys.stdout)


def age(moment: str, now: datetime) -> str:
    """Such as 45s, 12m, 3h or 2d; empty for no moment."""
    if not moment:
        return ""
    seconds = max(0, int((now - datetime.fromisoformat(moment)).total_seconds()))
    for below, unit, letter in _UNITS:
        if seconds < below:
            return f"{seconds // unit}{letter}"
    return f"{seconds // 86400}d"


def ago(moment: str, now: datetime) -> str:
    return f"{age(moment, now)} ago" if moment else ""
