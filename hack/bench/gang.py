"""`make bench-gang`: gangs, compared with kube-scheduler without gangs and with its own (alpha) gangs.

Its parts, each described in its module; `BENCH_PARTS=writes,churn` runs some of them, `SHAPES=20x50` some shapes:

- shapes (bench.gangshapes): how fast gangs start;
- writes (bench.gangwrites): requests for a gang;
- churn (bench.gangchurn): gangs that are created and deleted;
- memory (bench.gangmemory): a large cluster.

Each part has its own control planes, since native gangs need feature gates. A cluster
that KUBECONFIG names is not used.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from bench.gangchurn import report_churn
from bench.gangmemory import report_memory
from bench.gangplane import Planes
from bench.gangshapes import SHAPES, report_shapes
from bench.gangwrites import report_writes
from bench.report import progress

# No part begins later. On two idle cores all of them have ended by then.
LIMIT_SECONDS = 25 * 60.0

Part = Callable[[Planes], bool]


def chosen(name: str, known: Collection[str], environment: Mapping[str, str]) -> list[str]:
    """Returns the names in the variable, separated by commas or spaces, in the order of `known`; all if it is empty.

    Raises SystemExit for an unknown name.
    """
    named = environment.get(name, "").replace(",", " ").split()
    if unknown := [each for each in named if each not in known]:
        raise SystemExit(f"{name}: {', '.join(unknown)}: there are {', '.join(known)}")
    return [each for each in known if each in named or not named]


def parts(shapes: list[str]) -> Mapping[str, Part]:
    """Returns the parts by name, in order. The memory part is the last, since it fills its control plane."""
    return {
        "shapes": lambda planes: report_shapes(planes, shapes),
        "writes": report_writes,
        "churn": report_churn,
        "memory": report_memory,
    }


def main() -> int:
    """Prints all figures. Returns 1 if one missed its target or a part was skipped."""
    known = parts(chosen("SHAPES", SHAPES, os.environ))
    with Planes() as planes:
        return 0 if run(planes, [(name, known[name]) for name in chosen("BENCH_PARTS", known, os.environ)]) else 1


def run(planes: Planes, wanted: Sequence[tuple[str, Part]], clock: Callable[[], float] = time.monotonic) -> bool:
    """Runs the parts in order. Returns False if one missed its target or could not begin in time."""
    start = clock()
    ok = True
    for name, part in wanted:
        begin = clock()
        if begin - start > LIMIT_SECONDS:
            progress(f"{name}: skipped after {LIMIT_SECONDS / 60:.0f} minutes; BENCH_PARTS={name} runs it alone")
            ok = False
            continue
        ok &= part(planes)
        progress(f"{name}: {clock() - begin:.0f} s")
    return ok


if __name__ == "__main__":
    sys.exit(main())
