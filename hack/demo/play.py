"""The common parts of demos: arguments, environment, signals, exit codes, and the final output."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from demo.checks import Check, check_spread
from demo.follow import FINISHED_PHASES, DemoError, Seen, Subject
from demo.kubectl import KubectlError
from demo.screen import Screen
from demo.stage import Stage, open_stage
from demo.steps import ROOT
from localcluster.api import RefusedError
from localcluster.errors import LocalClusterError

INTERRUPTED = 128 + signal.SIGINT


@dataclass(frozen=True, slots=True)
class Image:
    """The image that the sample names, and how to request another one."""

    flag: str
    variable: str
    default: str
    help: str


@dataclass(frozen=True, slots=True)
class Play:
    """A demo of one sample. `run` gets the image, and returns its checks.

    `target` is that of make. `commands` are for the cluster that is kept running. `reports`: programs report their
    progress. `transfers`: pods fetch or save data.
    """

    target: str
    description: str
    image: Image
    run: Callable[[Stage, Screen, str], Sequence[Check]]
    sample: Path
    commands: tuple[str, ...]
    page: str
    reports: bool = False
    transfers: bool = False


def perform(play: Play) -> int:
    """Runs the demo and returns the exit code."""
    arguments = _parser(play).parse_args()
    screen = Screen(Console(highlight=False))

    def run() -> bool:
        use = {"reports": play.reports, "transfers": play.transfers}
        with open_stage(ROOT, arguments.keep, screen, play.image.default, **use) as stage:
            passed = screen.checks(play.run(stage, screen, arguments.image))
            _say_farewell(stage, screen, play)
            return passed

    return exit_code(screen, run)


def perform_alone(reason: str, run: Callable[[Screen], bool]) -> int:
    """Runs a demo that does not use the cluster of KUBECONFIG, and says the reason; returns the exit code."""
    screen = Screen(Console(highlight=False))
    if os.environ.get("KUBECONFIG"):
        screen.detail(f"KUBECONFIG is not used: {reason}")
    return exit_code(screen, lambda: run(screen))


def exit_code(screen: Screen, run: Callable[[], bool]) -> int:
    """Runs the demo, which returns whether it passed. SIGTERM and SIGHUP end it like Ctrl-C."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        passed = run()
    except (DemoError, KubectlError, LocalClusterError, RefusedError) as error:
        screen.error(str(error))
        return 1
    except KeyboardInterrupt:
        screen.step("interrupted: stopping everything that the demo started")
        return INTERRUPTED
    return 0 if passed else 1


def _parser(play: Play) -> argparse.ArgumentParser:
    image = play.image
    parser = argparse.ArgumentParser(prog=f"make {play.target}", description=play.description)
    parser.add_argument("--keep", action="store_true", help="keep cluster, controller and job running")
    parser.add_argument(
        image.flag, dest="image", default=os.environ.get(image.variable) or image.default, help=image.help
    )
    return parser


def remove_earlier(stage: Stage, screen: Screen, subject: Subject) -> None:
    """Deletes the job of an earlier demo, except for a running one on a foreign cluster, which may be a user's."""
    kind, name = subject.kind, subject.name
    if not stage.kubectl.exists(kind, name):
        return
    phase = stage.kubectl.get(kind, name).get("status", {}).get("phase")
    if not stage.own_nodes and phase not in FINISHED_PHASES:
        raise DemoError(f"a {kind} {name} exists already: kubectl delete {kind} {name}, then run the demo again")
    screen.step(f"kubectl delete {kind} {name}   (of an earlier demo)")
    stage.kubectl.run("delete", kind, name, "--ignore-not-found", "--cascade=foreground")


def spread_checks(stage: Stage, seen: Seen) -> list[Check]:
    """Checks that pods use both of our own nodes; an existing cluster may have only one node."""
    return [check_spread(seen.nodes, stage.own_nodes)] if stage.own_nodes else []


def _say_farewell(stage: Stage, screen: Screen, play: Play) -> None:
    screen.blank()
    if not stage.stays:
        screen.output(f"Next: `make {play.target} KEEP=1` keeps it running for kubectl; continue with {play.page}.")
        if not stage.own_nodes:
            screen.output(f"The job still exists: kubectl delete -f {play.sample}")
        return
    lines = [
        "Everything keeps running. Try:",
        f"  export KUBECONFIG={stage.kubectl.kubeconfig}",
        *([] if shutil.which("kubectl") else [f"  export PATH=$PATH:{stage.kubectl.binary.parent}     # for kubectl"]),
        *(f"  {command}" for command in play.commands),
        f"  curl {stage.controller_address}/metrics",
        f"  {stage.end_command}     # stops all of it",
        f"Continue with {play.page}.",
    ]
    screen.output("\n".join(lines))
