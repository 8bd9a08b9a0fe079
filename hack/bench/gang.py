"""`make bench-gang`: gangs, compared with kube-scheduler without gangs and with its own (alpha) gangs.

Its parts, each described in its module; `BENCH_PARTS=writes` runs some of them, `SHAPES=20x50` some shapes:

- shapes (bench.gangshapes): how fast gangs start;
- writes (bench.gangwrites): requests for a gang.

Each part has its own control planes, since native gangs need feature gates. A cluster that KUBECONFIG names is not
used.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Mapping

from bench.gangshapes import SHAPES, report_shapes
from bench.gangwrites import report_writes

Part = Callable[[], bool]


def chosen(name: str, known: Collection[str], environment: Mapping[str, str]) -> list[str]:
    """Returns the names in the variable, separated by commas or spaces, in the order of `known`; all if it is empty.

    Raises SystemExit for an unknown name.
    """
    named = environment.get(name, "").replace(",", " ").split()
    if unknown := [word for word in named if word not in known]:
        raise SystemExit(f"{name}: {', '.join(unknown)}: there are {', '.join(known)}")
    return [word for word in known if word in named or not named]


def parts(shapes: list[str]) -> Mapping[str, Part]:
    """Returns the parts by name, in order."""
    return {"shapes": lambda: report_shapes(shapes), "writes": report_writes}


def main() -> int:
    """Prints all figures. Returns 1 if one missed its target."""
    known = parts(chosen("SHAPES", SHAPES, os.environ))
    results = [known[name]() for name in chosen("BENCH_PARTS", known, os.environ)]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
