"""Plays a scene: arguments, stage, signals, exit code, and the final output."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from rich.console import Console

from demo.ownstage import kept_stage, own_stage
from demo.sample import Sample
from demo.screen import Check, Screen
from demo.stage import Cluster, Stage, end_command, shared_stage
from localcluster.api import RefusedError
from localcluster.controlplane import ControlPlane
from localcluster.errors import LocalClusterError

INTERRUPTED = 128 + signal.SIGINT


@dataclass(frozen=True, slots=True)
class Scene:
    """A demo, by the name of its make target. `run` shows the steps and returns the checks.

    On the shared stage, a `sample` is run, whose image `variable` replaces; `commands` are for the cluster that is
    kept, and the reader continues with `page`. On a stage of its own, `advice` is printed at the end. That stage stays
    with `fill`, which installs programs and creates jobs.
    """

    target: str
    description: str
    cluster: Cluster
    run: Callable[[Stage], Sequence[Check]]
    page: str = ""
    sample: Sample | None = None
    variable: str = ""
    commands: tuple[str, ...] = ()
    advice: str = ""
    fill: Callable[[ControlPlane, Stage], object] | None = None


def perform(scene: Scene, arguments: Sequence[str]) -> int:
    """Plays the scene and returns the exit code."""
    options = _parser(scene).parse_args(arguments)
    screen = Screen(Console(highlight=False))
    if scene.sample is not None:
        return exit_code(screen, lambda: _on_shared_stage(scene, screen, options))
    if os.environ.get("KUBECONFIG"):
        screen.detail("KUBECONFIG is not used: this demo starts a cluster of its own")
    if (fill := scene.fill) is not None:
        return exit_code(screen, lambda: screen.checks(scene.run(kept_stage(screen, scene.cluster, fill))))
    return exit_code(screen, lambda: _on_own_stage(scene, screen))


def _on_shared_stage(scene: Scene, screen: Screen, options: argparse.Namespace) -> bool:
    with shared_stage(screen, scene.cluster, keep=options.keep) as stage:
        passed = screen.checks(scene.run(replace(stage, image=options.image)))
        screen.blank()
        screen.output("\n".join(farewell(scene, stage)))
        return passed


def _on_own_stage(scene: Scene, screen: Screen) -> bool:
    with own_stage(screen, scene.cluster) as stage:
        passed = screen.checks(scene.run(stage))
        screen.blank()
        screen.output(f"Next:\n{scene.advice}")
        return passed


def exit_code(screen: Screen, run: Callable[[], bool]) -> int:
    """Runs a demo, which returns whether it passed. SIGTERM and SIGHUP end it like Ctrl-C."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        passed = run()
    except (LocalClusterError, RefusedError) as error:
        screen.error(str(error))
        return 1
    except KeyboardInterrupt:
        screen.step("interrupted: stopping everything that the demo started")
        return INTERRUPTED
    return 0 if passed else 1


def _parser(scene: Scene) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"make {scene.target}", description=scene.description)
    if scene.sample is not None:
        image = os.environ.get(scene.variable) or scene.sample.image
        parser.add_argument("--keep", action="store_true", help="keep cluster, controller and job running")
        parser.add_argument("--image", default=image, help="image of the job, which the cluster can pull")
    return parser


def farewell(scene: Scene, stage: Stage) -> list[str]:
    """Returns what to do next on the shared stage."""
    if not stage.stays:
        lines = [f"Next: `make {scene.target} KEEP=1` keeps it running for kubectl; continue with {scene.page}."]
        if stage.own_nodes or scene.sample is None:
            return lines
        return [*lines, f"The job still exists: kubectl delete -f {scene.sample.path}"]
    kubectl = stage.kubectl
    return [
        "Everything keeps running. Try:",
        f"  export KUBECONFIG={kubectl.kubeconfig}",
        *([] if shutil.which("kubectl") else [f"  export PATH=$PATH:{kubectl.binary.parent}     # for kubectl"]),
        *(f"  {command}" for command in scene.commands),
        f"  curl {stage.metrics_url}",
        f"  {end_command(stage.folder)}     # stops all of it",
        f"Continue with {scene.page}.",
    ]
