"""`python -m audit.jobs --kubeconfig PATH`: watches TFJobs, TrainJobs and their children, and reports violations.

It shares no code with the product: it has its own client, watches, parsers and rules, which follow the documented
contracts (docs/tfjob.md, docs/trainjob.md). The annotation `chaos.kubeflow.org/expects` of a job states its expected
result: SUCCESS, FAILED, or any.

SIGUSR1 reports an outage; deadlines start again at that time and last `--reaction-seconds`. After SIGTERM the auditor
waits, for at most `--settle-seconds`, until no violation is left that the product or Kubernetes may still correct. Then
it lists everything, judges, and prints one JSON line:

    {"duplicates": 0, "orphans": 0, "wrong_states": 0, "reruns": 0, "late_starts": 0, "stuck": 0,
     "violations": [], "versions_seen": 4711, "jobs": 12, "gaps": 0, "seconds": 61.5}

Whether gangs are bound as a whole is judged by `python -m audit`.

If there are violations, it writes all observed versions to the file `--keep`, a JSON line for each version of each
object, in the order of the cluster (`History.rows`), without the data of Secrets.

`gaps` is the number of times that the server had compacted a watch's version, so that changes were missed. The exit
code is 1 if there are violations and 2 if the cluster cannot be read.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from audit.flags import Signals
from audit.jobs.auditor import Auditor, paths_in
from audit.jobs.judge import Limits
from localcluster.api import Api
from localcluster.errors import LocalClusterError

READY = "auditing"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code."""
    defaults = Limits()
    parser = argparse.ArgumentParser(prog="python -m audit.jobs", description="Watches jobs and reports violations.")
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--reaction-seconds", type=float, default=defaults.reaction_seconds, metavar="N")
    parser.add_argument("--settle-seconds", type=float, default=0.0, metavar="N", help="default: --reaction-seconds")
    parser.add_argument("--skew-seconds", type=float, default=defaults.skew_seconds, metavar="N")
    parser.add_argument("--namespace", default="", metavar="NAME", help="default: all")
    parser.add_argument(
        "--keep", type=Path, metavar="FILE", help="file for the recorded history, if there are violations"
    )
    given = parser.parse_args(argv)
    signals = Signals()
    signals.listen()
    limits = Limits(given.reaction_seconds, given.skew_seconds)
    settle_seconds = given.settle_seconds or given.reaction_seconds
    try:
        api = Api.from_kubeconfig(given.kubeconfig)
        with Auditor(api, paths_in(given.namespace), limits, settle_seconds, signals) as auditor:
            print(READY, file=sys.stderr, flush=True)
            auditor.watch()
            report = auditor.report()
        if report["violations"] and given.keep:
            auditor.keep(given.keep)
    except (LocalClusterError, TimeoutError, OSError) as error:
        print(f"audit.jobs: {error}", file=sys.stderr)
        return 2
    print(json.dumps(report), flush=True)
    return 1 if report["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
