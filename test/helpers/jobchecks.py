"""How other clients judge an object: by GJSON paths, as Katib does, and by Lua scripts, as Argo CD does."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from localcluster import binaries


def found_by_gjson(thing: dict[str, Any], path: str) -> bool:
    """Returns whether the path finds something, which is how Katib reads a condition."""
    return bool(_judged(thing, "gjson", path))


def health_by_lua(thing: dict[str, Any], script: str) -> tuple[str, str]:
    """Returns status and message of the health check."""
    status, _, message = _judged(thing, "lua", script).partition(": ")
    return status, message


def _judged(thing: dict[str, Any], language: str, text: str) -> str:
    argv = [binaries.ensure("jobchecks"), language, text]
    done = subprocess.run(argv, input=json.dumps(thing), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
