"""Brings up a cluster, starts the controller, runs the example job, and shows each step.

Exit code 0 only if the job is Done/Succeeded *and* the master's log holds the right numbers *and* its pods used both
nodes. Ctrl-C stops whatever the demo has started.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
from pathlib import Path

from rich.console import Console

from demo.checks import Check, check_job, check_log, check_spread
from demo.follow import FINISHED_PHASES, DemoError, Seen, follow
from demo.kubectl import Kubectl, KubectlError
from demo.screen import Screen
from demo.stage import Stage, open_stage

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = Path("manifests/samples/example-job.yaml")
JOB = "example-job"
MASTER = f"tf_job_name={JOB},job_type=MASTER"
JOB_TIMEOUT_SECONDS = 300
# The image that the samples name; replaced where another one was asked for.
SAMPLE_IMAGE = "localhost/tensorflow"
INTERRUPTED = 128 + signal.SIGINT


def main() -> int:
    """Run the demo; returns the exit code."""
    arguments = _parser().parse_args()
    screen = Screen(Console(highlight=False))
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)  # as Ctrl-C
    try:
        with open_stage(ROOT, arguments.keep, screen) as stage:
            passed = run(stage, screen, arguments.tf_image)
            farewell(stage, screen)
    except (DemoError, KubectlError) as error:
        screen.error(str(error))
        return 1
    except KeyboardInterrupt:
        screen.step("interrupted: everything that the demo started is stopped")
        return INTERRUPTED
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


def run(stage: Stage, screen: Screen, image: str) -> bool:
    """The job itself: apply, follow, log, events, checks. True if all checks hold."""
    kubectl = stage.kubectl
    remove_earlier(stage, screen)
    screen.step(f"kubectl apply -f {SAMPLE}")
    manifest = (ROOT / SAMPLE).read_text().replace(SAMPLE_IMAGE, image)
    screen.output(kubectl.run("apply", "-f", "-", stdin=manifest))
    screen.blank()
    seen = follow(kubectl, JOB, screen, JOB_TIMEOUT_SECONDS)
    screen.blank()
    log = show_end(kubectl, screen)
    checks = [check_job(seen.job), check_log(log), *spread_checks(stage, seen)]
    for check in checks:
        screen.check(check)
    return all(check.holds for check in checks)


def remove_earlier(stage: Stage, screen: Screen) -> None:
    """The job of an earlier demo. On a cluster that is not ours one that still runs may be somebody's: not touched."""
    if not stage.kubectl.exists("tfjob", JOB):
        return
    phase = stage.kubectl.get("tfjob", JOB).get("status", {}).get("phase")
    if not stage.own_nodes and phase not in FINISHED_PHASES:
        raise DemoError(f"a TFJob {JOB} is at work already: kubectl delete tfjob {JOB}, then run the demo again")
    screen.step(f"kubectl delete tfjob {JOB}   (an earlier demo's)")
    stage.kubectl.run("delete", "tfjob", JOB, "--ignore-not-found", "--cascade=foreground")


def show_end(kubectl: Kubectl, screen: Screen) -> str:
    """What a user would look at now; returns the master's log."""
    with screen.command(f"kubectl logs -l {MASTER}"):
        log = kubectl.run("logs", "-l", MASTER, "--tail=-1")
        screen.output("\n".join(line for line in log.splitlines() if not _is_noise(line)))
    with screen.command(f"kubectl events --for tfjob/{JOB}"):
        screen.output(kubectl.run("events", "--for", f"tfjob/{JOB}"))
    with screen.command("kubectl get tfjobs"):
        screen.output(kubectl.run("get", "tfjobs"))
    return log


def _is_noise(line: str) -> bool:
    """TensorFlow's own start-up chatter (absl's `I0000 …` lines)."""
    return line[:5] in ("I0000", "W0000", "E0000") or line.startswith(("WARNING: All log messages", "To enable the"))


def spread_checks(stage: Stage, seen: Seen) -> list[Check]:
    """On our own two nodes the pods must use both; an existing cluster may have one only."""
    return [check_spread(seen.nodes, stage.own_nodes)] if stage.own_nodes else []


def farewell(stage: Stage, screen: Screen) -> None:
    """What to try next."""
    screen.blank()
    if not stage.stays:
        screen.output("Next: `make demo KEEP=1` leaves it running for kubectl; docs/quickstart.md goes on from here.")
        if not stage.own_nodes:
            screen.output(f"The job is still there: kubectl delete -f {SAMPLE}")
        return
    lines = [
        "Left running. Try:",
        f"  export KUBECONFIG={stage.kubectl.kubeconfig}",
        *([] if shutil.which("kubectl") else [f"  export PATH=$PATH:{stage.kubectl.binary.parent}     # for kubectl"]),
        "  kubectl get tfjobs,jobs,pods -o wide",
        f"  kubectl describe tfjob {JOB}",
        "  kubectl apply -f manifests/samples/train-ps.yaml",
        f"  curl {stage.controller_address}/metrics",
        f"  {stage.end_command}     # ends all of it",
        "docs/quickstart.md goes on from here.",
    ]
    screen.output("\n".join(lines))


if __name__ == "__main__":
    sys.exit(main())
