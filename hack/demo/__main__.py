"""Brings up a cluster, starts the controller, runs the example job, and shows each step.

Exit code 0 only if the job is Done/Succeeded *and* the master's log holds the right numbers.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.text import Text

from demo.checks import Check, check_job, check_log, check_spread
from demo.follow import DemoError, Seen, follow
from demo.kubectl import Kubectl, KubectlError
from demo.stage import Stage, open_stage

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = Path("manifests/samples/example-job.yaml")
JOB = "example-job"
JOB_TIMEOUT_SECONDS = 300
# The image that the samples name; replaced where another one was asked for.
SAMPLE_IMAGE = "localhost/tensorflow"


def main() -> int:
    """Run the demo; returns the exit code."""
    arguments = _parser().parse_args()
    # A pipe is no terminal: rich then prints each step once, without the live picture.
    console = Console(highlight=False)
    try:
        with open_stage(ROOT, arguments.keep, lambda text: step(console, text)) as stage:
            passed = run(stage, console, arguments.tf_image)
            farewell(stage, console)
    except (DemoError, KubectlError) as error:
        console.print(Text.assemble(("error: ", "bold red"), str(error)))
        return 1
    except KeyboardInterrupt:
        console.print("interrupted; everything that the demo started is stopped")
        return 130
    return 0 if passed else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave cluster, controller and job running")
    parser.add_argument(
        "--tf-image",
        default=os.environ.get("TF_IMAGE") or SAMPLE_IMAGE,
        help="image with TensorFlow that the cluster can pull",
    )
    return parser


def step(console: Console, text: str) -> None:
    console.print(Text.assemble(("==> ", "bold cyan"), text))


@contextmanager
def shown(console: Console, command: str) -> Iterator[None]:
    console.print(Text.assemble(("$ ", "bold"), command))
    yield
    console.print()


def run(stage: Stage, console: Console, image: str) -> bool:
    """The job itself: apply, follow, log, events, checks. True if all checks hold."""
    kubectl = stage.kubectl
    step(console, f"kubectl apply -f {SAMPLE}")
    manifest = (ROOT / SAMPLE).read_text().replace(SAMPLE_IMAGE, image)
    kubectl.run("delete", "tfjob", JOB, "--ignore-not-found", "--cascade=foreground")
    console.print(kubectl.run("apply", "-f", "-", stdin=manifest).rstrip())
    seen = follow(kubectl, JOB, console, JOB_TIMEOUT_SECONDS)
    log = show_end(kubectl, console)
    checks = [check_job(seen.job), check_log(log), *spread_checks(stage, seen)]
    for check in checks:
        show_check(console, check)
    return all(check.holds for check in checks)


def show_end(kubectl: Kubectl, console: Console) -> str:
    """What a user would look at now; returns the master's log."""
    with shown(console, f"kubectl logs -l tf_job_name={JOB},job_type=MASTER"):
        log = kubectl.run("logs", "-l", f"tf_job_name={JOB},job_type=MASTER", "--tail=-1")
        console.print("\n".join(line for line in log.splitlines() if not _is_noise(line)))
    with shown(console, f"kubectl events --for tfjob/{JOB}"):
        console.print(kubectl.run("events", "--for", f"tfjob/{JOB}").rstrip())
    with shown(console, "kubectl get tfjobs"):
        console.print(kubectl.run("get", "tfjobs").rstrip())
    return log


def _is_noise(line: str) -> bool:
    """TensorFlow's own start-up chatter (absl's `I0000 …` lines)."""
    return line[:5] in ("I0000", "W0000", "E0000") or line.startswith(("WARNING: All log messages", "To enable the"))


def spread_checks(stage: Stage, seen: Seen) -> list[Check]:
    """On our own two nodes the pods must use both; an existing cluster may have one only."""
    return [check_spread(list(seen.node_of_replica.values()), stage.own_nodes)] if stage.own_nodes else []


def show_check(console: Console, check: Check) -> None:
    mark, style = ("✓", "green") if check.holds else ("✗", "bold red")
    console.print(Text.assemble((f"{mark} ", style), check.text))


def farewell(stage: Stage, console: Console) -> None:
    """What to try next."""
    console.print()
    if stage.kept:
        console.print(f"Left running. Try:\n  export KUBECONFIG={stage.kubectl.kubeconfig}")
        console.print("  kubectl get tfjobs,pods -o wide\n  kubectl describe tfjob example-job")
        console.print("  kubectl apply -f manifests/samples/train-ps.yaml\n  make cluster-down     # ends all of it")
    else:
        console.print("Next: `make demo KEEP=1` leaves it running for kubectl; docs/quickstart.md goes on from here.")


if __name__ == "__main__":
    sys.exit(main())
