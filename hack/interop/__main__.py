"""`python -m interop kueue`: runs the tests with the real program, and records what was seen.

The program is built first if necessary, which takes minutes. The exit code is 1 if a rule did not hold, which is
recorded as well.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from interop.record import Record, rules_of, write
from localcluster import addons, binaries
from localcluster.errors import LocalClusterError
from localcluster.report import to_stderr

_ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    parser = argparse.ArgumentParser(prog="interop", description=__doc__)
    parser.add_argument("name", metavar="NAME", help=f"one of: {', '.join(addons.ADDONS)}")
    parser.add_argument("arguments", nargs="*", metavar="ARGUMENT", help="for pytest; then nothing is recorded")
    chosen = parser.parse_args()
    try:
        addon = addons.addon(chosen.name)
        binaries.ensure_all([*binaries.CONTROL_PLANE, *(program.name for program in addon.programs)])
    except LocalClusterError as error:
        to_stderr(f"error: {error}")
        return error.exit_code
    code, seen = _run(addon.name, chosen.arguments)
    if chosen.arguments or not seen:
        return code
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    path = write(Record(addon.name, addon.version, binaries.kubernetes_version(), today, rules_of(seen)))
    to_stderr(f"recorded in {path.relative_to(_ROOT)}")
    to_stderr("next:   make generate     (the table in docs/interop.md), and commit both")
    return code


def _run(name: str, arguments: list[str]) -> tuple[int, dict[str, dict[str, bool]]]:
    """Runs the tests; returns pytest's exit code and what was seen."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.json"
        command = [sys.executable, "-m", "pytest", "-v", f"test/interop/test_{name}.py", *arguments]
        environment = {**os.environ, "INTEROP_RESULTS": str(results)}
        code = subprocess.run(command, cwd=_ROOT, env=environment, check=False).returncode
        seen: dict[str, dict[str, bool]] = json.loads(results.read_text()) if results.is_file() else {}
        return code, seen


if __name__ == "__main__":
    sys.exit(main())
