"""`make bench-scale`: 1,000 jobs of 10 replicas on 5,000 nodes, and the cost of a new job beside many finished ones.

See bench.scalerun and bench.scalekept. Each has a control plane of its own, whose etcd does not sync to disk; a cluster
that KUBECONFIG names is not used. Kwok simulates pods. The controller has default flags except for `--qps=0`.

SCALE_PARTS     run, kept; by default both
SCALE_JOBS, SCALE_REPLICAS, SCALE_NODES          1000, 10, 5000
SCALE_KEPT, SCALE_NEW_JOBS, SCALE_NEW_REPLICAS   5000 finished jobs at most; 50 new ones of 4 replicas in a round
SCALE_MINUTES   minutes after which the run ends, 120
SCALE_KUBELET   kwok, or fake: this project's fake kubelet, which is slower and needs no build
"""

from __future__ import annotations

import os
import sys

from bench.report import progress
from localcluster.errors import LocalClusterError

_PARTS = ("run", "kept")


def main() -> int:
    """Prints the figures. Returns 1 if one missed its target."""
    try:
        parts = [part.strip() for part in os.environ.get("SCALE_PARTS", ",".join(_PARTS)).split(",")]
        if unknown := set(parts) - set(_PARTS):
            raise ValueError(f"SCALE_PARTS={','.join(sorted(unknown))}: there are {', '.join(_PARTS)}")
        return max(map(_report, parts))
    except (LocalClusterError, TimeoutError, ValueError) as error:
        progress(f"bench-scale: {error}")
        return 2


def _report(part: str) -> int:
    # Imported here, since these modules read their sizes from the environment and raise an error for wrong ones.
    if part == "run":
        from bench.scalerun import report_run

        return 0 if report_run() else 1
    from bench.scalekept import report_kept

    return 0 if report_kept() else 1


if __name__ == "__main__":
    sys.exit(main())
