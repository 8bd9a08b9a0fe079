"""The stage of a scene: a cluster with the CRDs of this project, and kubectl for it.

`shared_stage` uses the default stack, or the cluster of KUBECONFIG, with a controller. It ends all that it starts: at
once on Ctrl-C, otherwise at the end, unless it is kept (KEEP=1). It keeps what existed before: a stack that already
runs is used, and the controller of an earlier demo is replaced by one that remains too. demo.ownstage has other stages.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from demo.kubectl import CRDS, Kubectl, apply_crds
from demo.screen import Screen
from localcluster import binaries, images, nodes, ports, process, stack, state
from localcluster.api import Api
from localcluster.errors import LocalClusterError
from localcluster.ourprogram import METRICS, PROBES, OurProgram

ROOT = Path(__file__).resolve().parents[2]
RUNTIMES = Path("manifests/base/runtimes")
NODES = 2
NAMESPACE = "default"
# The state folder of the controller on a foreign cluster.
GUEST_NAME = "demo"
STOP_GRACE_SECONDS = 10
_POLL_SECONDS = 0.5

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Cluster:
    """What a scene needs: images on the nodes and flags of the programs.

    `name` is that of its own stack, which `title` describes; without one it uses the shared stage. `gpu` is the
    extended resource of which each node has `gpus_per_node`; with `is_simulated` the nodes are simulated, too.
    """

    name: str = ""
    title: str = ""
    images: tuple[str, ...] = ()
    controller: tuple[str, ...] = ()
    extender: tuple[str, ...] = ()
    gpu: str = ""
    gpus_per_node: int = 0
    is_simulated: bool = False


@dataclass(frozen=True, slots=True)
class Stage:
    """`own_nodes` is 0 on a foreign cluster; `stays` means that the controller continues after the demo.

    `folder` contains logs and is the mark of the programs. `image` is that of the jobs, if a user can choose it.
    """

    screen: Screen
    kubectl: Kubectl
    api: Api
    folder: Path
    own_nodes: int = NODES
    stays: bool = False
    metrics_url: str = ""
    image: str = ""

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    def install_crds(self) -> None:
        self.screen.step(f"kubectl apply -f {CRDS}")
        self.screen.output(apply_crds(self.kubectl, ROOT))

    def install_runtimes(self) -> None:
        self.kubectl.run("apply", "--server-side", "-k", str(ROOT / RUNTIMES))

    def apply(self, *objects: Object, command: str = "apply") -> str:
        """Applies the objects, or creates them with that command; returns the output of kubectl."""
        body = {"apiVersion": "v1", "kind": "List", "items": objects}
        return self.kubectl.run(command, "-f", "-", stdin=json.dumps(body))

    def show(self, command: str, *more: str, only: str = "") -> None:
        """Runs a command and shows its output; with `only`, lines with this word. `more` arguments are not shown."""
        with self.screen.command(f"{command} | grep {only}" if only else command):
            lines = self.kubectl.run(*command.split()[1:], *more).splitlines()
            self.screen.output("\n".join(line for line in lines if only in line))


def stage_of(screen: Screen, kubeconfig: Path, folder: Path, namespace: str = NAMESPACE) -> Stage:
    kubectl = Kubectl(binaries.ensure("kubectl", screen.detail), kubeconfig, namespace)
    return Stage(screen, kubectl, Api.from_kubeconfig(kubeconfig), folder)


def has_condition(obj: Object, condition_type: str) -> bool:
    conditions = obj.get("status", {}).get("conditions", ())
    return any(condition["type"] == condition_type and condition["status"] == "True" for condition in conditions)


def wait(is_reached: Callable[[], object], seconds: float, what: str, poll_seconds: float = _POLL_SECONDS) -> None:
    """Polls until the condition holds. Raises LocalClusterError after the time limit."""
    deadline = time.monotonic() + seconds
    while not is_reached():
        if time.monotonic() > deadline:
            raise LocalClusterError(f"not within {seconds:.0f} s: {what}")
        time.sleep(poll_seconds)


@contextmanager
def ending(end: Callable[[], object], *, stays: bool = False, stays_after_error: bool = False) -> Iterator[None]:
    """Calls `end` after the block, unless what it ends is to stay, which is never so after Ctrl-C."""
    is_due = True
    try:
        yield
        is_due = not stays
    except LocalClusterError:
        is_due = not stays_after_error
        raise
    finally:
        if is_due:
            # A second Ctrl-C must not interrupt the clean-up.
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            end()


@contextmanager
def shared_stage(screen: Screen, cluster: Cluster, *, keep: bool) -> Iterator[Stage]:
    """Yields the stage with CRDs and a controller. Raises LocalClusterError."""
    with _opened(screen, cluster.images, keep) as stage:
        stage.install_crds()
        with _controller(stage, keep) as ready:
            yield ready


def prepare_images(screen: Screen, cluster: Cluster) -> None:
    """Builds the images before the nodes, which start with them."""
    nodes.prepare(list(cluster.images), screen.detail, tools=["kubectl"])


def load_images(folder: Path, screen: Screen, names: Sequence[str]) -> None:
    for name in names:
        nodes.load_image(folder, name, screen.detail)


@contextmanager
def _opened(screen: Screen, needed: Sequence[str], keep: bool) -> Iterator[Stage]:
    existing = stack.existing_kubeconfig()
    if existing is not None and not stack.is_own(existing):
        screen.step(f"using the cluster of KUBECONFIG={existing}: none is started")
        folder = state.stack_dir(GUEST_NAME)
        state.make_private(folder)
        yield replace(stage_of(screen, Path(existing), folder), own_nodes=0)
        return
    # Our own stack, the default one unless KUBECONFIG names another.
    folder = Path(existing).parent if existing else state.stack_dir()
    recorded = state.read(folder)
    was_there = state.condition(recorded) is state.Condition.RUNNING
    _refuse_borrowed(recorded)
    screen.step(f"a control plane and {NODES} nodes" + (", which are running already" if was_there else ""))
    prepare_images(screen, Cluster(images=tuple(needed)))
    for image in needed:
        screen.detail(f"image {image}: {images.path(image)}")

    def stop() -> None:
        screen.step("stopping the cluster")
        stack.down(folder, screen.detail)

    with nullcontext() if was_there else ending(stop, stays=keep, stays_after_error=keep):
        plane = stack.up(folder, NODES, owner=None if keep else process.myself(), report=screen.detail)
        _revive(folder, screen)
        load_images(folder, screen, needed)
        screen.detail(f"KUBECONFIG={plane.kubeconfig}")
        yield stage_of(screen, plane.kubeconfig, folder)


def _refuse_borrowed(recorded: state.StackState | None) -> None:
    """Raises LocalClusterError for a stack that ends with its owner, which may end during the demo."""
    owner = recorded.owner if recorded is not None and recorded.boot_id == process.boot_id() else None
    if owner is not None and process.is_alive(owner):
        raise LocalClusterError(f"another demo is running (process {owner.pid}): wait until it ends")


def _revive(folder: Path, screen: Screen) -> None:
    """Restarts nodes that a user has killed with node-kill on a stack that was kept running."""
    for node in nodes.status(folder):
        if node["condition"] == "dead":
            screen.detail(f"{node['name']} is dead: restarting it")
            stack.node_start(folder, int(str(node["number"])), screen.detail)


@contextmanager
def _controller(stage: Stage, keep: bool) -> Iterator[Stage]:
    """Runs `tfjob-controller run`. `cluster-down` finds it by its mark."""
    screen, was_there = stage.screen, end_controllers(stage.folder)
    log = stage.logs / "tfjob-controller.log"
    state.make_private(log.parent)
    with ports.reserve(2) as (probes, metrics):
        served = {PROBES: probes, METRICS: metrics}
        program = OurProgram("run", stage.kubectl.kubeconfig, served, log=log, mark=stage.folder)
        screen.step("tfjob-controller run" + ("   (replaces that of an earlier demo)" if was_there else ""))
        screen.detail(f"log: {log}")
        program.start()

        def stop() -> None:
            screen.step("stopping the controller")
            program.end(grace_seconds=STOP_GRACE_SECONDS)

        with nullcontext() if was_there else ending(stop, stays=keep, stays_after_error=keep):
            program.wait_ready()
            screen.detail(f"ready: {program.urls[PROBES]}/readyz, {program.urls[METRICS]}/metrics")
            yield replace(stage, stays=keep or was_there, metrics_url=f"{program.urls[METRICS]}/metrics")


def end_controllers(folder: Path) -> bool:
    """Ends the controller of an earlier demo, since two would act on the same jobs; returns whether there was one."""
    was_there = False
    for identity in process.marked(folder):
        with suppress(OSError):
            if b"tfjob_controller\0run" in Path(f"/proc/{identity.pid}/cmdline").read_bytes():
                process.end([identity], grace_seconds=STOP_GRACE_SECONDS)
                was_there = True
    return was_there


def end_command(folder: Path) -> str:
    return "make cluster-down" + ("" if folder.name == state.DEFAULT_NAME else f" NAME={folder.name}")
