"""`python -m platforms`: on which platforms and Pythons the package can be installed without compiling anything.

Prints a table in Markdown, the one in docs/install.md, then installs the base requirements here and runs the plugin.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from platforms.installed import InstalledError, check
from platforms.wheels import BASE, EXTRAS, PLATFORMS, PYTHONS, REPOSITORY, Outcome, resolve_all, table


def main() -> int:
    """Returns the exit code: 1 if the base or the dashboard cannot be installed somewhere where it should."""
    parser = argparse.ArgumentParser(prog="python -m platforms", description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="the Python for the install (default: this one)")
    given = parser.parse_args()
    outcomes: list[Outcome] = []
    total = len(PLATFORMS) * len(PYTHONS) * len(EXTRAS)
    for outcome in resolve_all(REPOSITORY / "setup.cfg", tuple(PLATFORMS), PYTHONS):
        outcomes.append(outcome)
        print(
            f"\r{len(outcomes)} of {total}: {outcome.platform}, Python {outcome.python}", end="\033[K", file=sys.stderr
        )
    print(file=sys.stderr)
    print("\n".join(table(outcomes)))
    try:
        print("\n".join(["", f"installed without extras with {given.python}:", *check(given.python)]))
    except (InstalledError, subprocess.TimeoutExpired) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    lacking = [each for each in outcomes if each.missing and each.extra == BASE]
    for each in lacking:
        print(f"error: {each.platform}, Python {each.python}: no wheel of {each.missing}", file=sys.stderr)
    return 1 if lacking else 0


if __name__ == "__main__":
    sys.exit(main())
