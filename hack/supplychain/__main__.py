"""`python -m supplychain`: locks, licences, advisories and forgotten credentials; exit code 1 if anything is wrong.

In CI an advisory is reported and does not fail the job.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from supplychain import advisories, licences, lock, secretscan

ROOT = Path(__file__).resolve().parents[2]
LOCKS = ROOT / "hack" / "requirements"


def main() -> int:
    pins = {path.stem: lock.read(path)[0] for path in sorted(LOCKS.glob("*.txt"))}
    shipped = frozenset(pin.name for name in lock.SHIPPED for pin in pins[name])
    problems = [
        *lock.all_problems(LOCKS),
        *licences.problems((pin.name for pin in pins[lock.WHOLE]), shipped),
        *secretscan.in_tree(ROOT),
    ]
    problems += _advisories([pin for found in pins.values() for pin in found])
    for problem in problems:
        print(problem)
    return 1 if problems else 0


def _advisories(pins: list[lock.Pin]) -> list[str]:
    try:
        known = advisories.ask(pins)
    except advisories.NotReachedError as why:
        print(f"advisories: not reached ({why}), so known vulnerabilities were not looked for", file=sys.stderr)
        return []
    print(f"advisories: {len({(pin.name, pin.version) for pin in pins})} locked versions looked up")
    if os.environ.get("CI"):  # the same commit must have the same verdict, whatever was published meanwhile
        print("".join(f"advisory, which fails elsewhere: {each}\n" for each in known), end="")
        return []
    return known


raise SystemExit(main())
