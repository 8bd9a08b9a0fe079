"""`python -m audit.jobs --kubeconfig PATH`: watches TFJobs, TrainJobs and all of theirs until SIGTERM, and judges.

It shares no code with the product: own client, own watches, own reading of objects, own rules, which say what the
contracts say (docs/tfjob.md, docs/trainjob.md). What a job should come to, its annotation
`chaos.kubeflow.org/expects` tells: SUCCESS, FAILED, or any.

SIGUSR1 says that an outage just happened; no deadline runs out for `--reaction-seconds` from then on. After SIGTERM it
waits, for at most `--settle-seconds`, until nothing is left that the product or Kubernetes may still put right; then it
lists everything anew, judges, and prints one JSON line:

    {"duplicates": 0, "orphans": 0, "partial_gangs": 0, "wrong_states": 0, "reruns": 0, "stuck": 0,
     "violations": [], "versions_seen": 4711, "jobs": 12, "gaps": 0, "seconds": 61.5}

Where there are violations, `--keep` gets all that was seen, a JSON line for each version of each object, in the order
of the cluster: `History.rows`. No Secret's data is among it.

`gaps` counts how often the server had forgotten where a watch stood: instants that nobody saw. Exit code 1 if there
are violations, 2 if the cluster cannot be read.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from audit.jobs.auditor import Auditor, Told, paths_in
from audit.jobs.judge import Limits
from localcluster.api import Api
from localcluster.errors import LocalClusterError

READY = "auditing"


def main(argv: Sequence[str] | None = None) -> int:
    """The command. Returns the exit code."""
    defaults = Limits()
    parser = argparse.ArgumentParser(prog="python -m audit.jobs", description="Watches jobs and says what went wrong.")
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--reaction-seconds", type=float, default=defaults.reaction_seconds, metavar="N")
    parser.add_argument("--settle-seconds", type=float, default=0.0, metavar="N", help="default: --reaction-seconds")
    parser.add_argument("--skew-seconds", type=float, default=defaults.skew_seconds, metavar="N")
    parser.add_argument("--namespace", default="", metavar="NAME", help="default: all")
    parser.add_argument(
        "--keep", type=Path, metavar="FILE", help="file for the recorded history, if there are violations"
    )
    given = parser.parse_args(argv)
    told = Told()
    told.listen()
    limits = Limits(given.reaction_seconds, given.skew_seconds)
    settle_seconds = given.settle_seconds or given.reaction_seconds
    try:
        api = Api.from_kubeconfig(given.kubeconfig)
        with Auditor(api, paths_in(given.namespace), limits, settle_seconds, told) as auditor:
            print(READY, file=sys.stderr, flush=True)
            auditor.watch()
            report = auditor.verdict()
        if report["violations"] and given.keep:
            auditor.keep(given.keep)
    except (LocalClusterError, TimeoutError, OSError) as error:
        print(f"audit.jobs: {error}", file=sys.stderr)
        return 2
    print(json.dumps(report), flush=True)
    return 1 if report["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
