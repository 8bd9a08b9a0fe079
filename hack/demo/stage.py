"""The environment of the demo: a cluster, the CRDs, a running controller.

The demo ends all that it starts: at once on Ctrl-C, otherwise at the end, unless it is kept (KEEP=1). It keeps what
existed before: a stack that already runs is used, and the controller of an earlier demo is replaced by one that remains
too.
"""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from demo.crds import CRDS, apply_crds
from demo.follow import DemoError
from demo.kubectl import Kubectl, KubectlError
from demo.ready import wait_ready
from demo.screen import Screen
from localcluster import binaries, images, nodes, ports, process, stack, state
from localcluster.api import Api
from localcluster.errors import LocalClusterError
from localcluster.process import Identity

NODES = 2
NAMESPACE = "default"
# The state folder of the controller on a foreign cluster.
GUEST_NAME = "demo"
STOP_GRACE_SECONDS = 10


@dataclass(frozen=True, slots=True)
class Cluster:
    """`nodes` is 0 on a foreign cluster; `folder` contains logs and is the mark of the controller."""

    folder: Path
    kubeconfig: Path
    nodes: int


@dataclass(frozen=True, slots=True)
class Stage:
    """`own_nodes` is 0 on a foreign cluster; `stays` means that the controller continues after the demo."""

    kubectl: Kubectl
    own_nodes: int
    stays: bool
    controller_address: str
    end_command: str


@contextmanager
def open_stage(
    root: Path,
    keep: bool,
    screen: Screen,
    image: str = images.TENSORFLOW,
    *,
    reports: bool = False,
    transfers: bool = False,
) -> Iterator[Stage]:
    """Yields a cluster with CRDs and controller, and with the image on its nodes. Raises `DemoError` in one line.

    `reports` starts the controller's progress server. `transfers`: pods fetch or save data.
    """
    needed = [image, images.INITIALIZER] if transfers else [image]
    try:
        with _cluster(keep, screen, needed) as cluster:
            kubectl = Kubectl(binaries.ensure("kubectl", screen.detail), cluster.kubeconfig, NAMESPACE)
            screen.step(f"kubectl apply -f {CRDS}")
            screen.output(apply_crds(kubectl, root))
            with _controller(cluster, keep, screen, reports=reports, transfers=transfers) as (address, stays):
                yield Stage(kubectl, cluster.nodes, stays, address, _end_command(cluster))
    except LocalClusterError as error:
        raise DemoError(str(error)) from error


@contextmanager
def _cluster(keep: bool, screen: Screen, needed: Sequence[str]) -> Iterator[Cluster]:
    existing = stack.existing_kubeconfig()
    if existing is None or stack.is_own(existing):
        # Our own stack, the default one unless KUBECONFIG names another.
        folder = Path(existing).parent if existing else state.stack_dir()
        with _own_cluster(folder, keep, screen, needed) as cluster:
            yield cluster
        return
    screen.step(f"using the cluster of KUBECONFIG={existing}: none is started")
    folder = state.stack_dir(GUEST_NAME)
    state.make_private(folder)
    yield Cluster(folder, Path(existing), 0)


@contextmanager
def _own_cluster(folder: Path, keep: bool, screen: Screen, needed: Sequence[str]) -> Iterator[Cluster]:
    found = state.read(folder)
    was_there = state.condition(found) is state.Condition.RUNNING
    _refuse_borrowed(found)
    screen.step(f"a control plane and {NODES} nodes" + (", which are running already" if was_there else ""))
    # Images are prepared first, so that the nodes start with them.
    nodes.prepare(list(needed), screen.detail, screen.console, tools=["kubectl"])
    for image in needed:
        screen.detail(f"image {image}: {images.path(image)}")
    with _ending(lambda: _stop_cluster(folder, screen), keep, was_there):
        plane = stack.up(folder, NODES, owner=None if keep else process.myself(), report=screen.detail)
        _revive(folder, screen)
        for image in needed:
            nodes.load_image(folder, image, screen.detail)
        screen.detail(f"KUBECONFIG={plane.kubeconfig}")
        yield Cluster(folder, plane.kubeconfig, NODES)


def _refuse_borrowed(found: state.StackState | None) -> None:
    """Raises `DemoError` for a stack that ends with its owner, which may end during the demo."""
    owner = found.owner if found is not None and found.boot_id == process.boot_id() else None
    if owner is not None and process.is_alive(owner):
        raise DemoError(f"another demo is running (process {owner.pid}): wait until it ends")


def _revive(folder: Path, screen: Screen) -> None:
    """Restarts nodes that a user has killed with node-kill on a stack that was kept running."""
    for node in nodes.status(folder):
        if node["condition"] == "dead":
            screen.detail(f"{node['name']} is dead: restarting it")
            stack.node_start(folder, int(str(node["number"])), screen.detail)


def _stop_cluster(folder: Path, screen: Screen) -> None:
    screen.step("stopping the cluster")
    stack.down(folder, screen.detail)


@contextmanager
def _ending(end: Callable[[], None], keep: bool, was_there: bool) -> Iterator[None]:
    """Calls `end` after the block, also after an error, unless the object existed before or is to be kept.

    An interrupted demo keeps nothing.
    """
    stays = was_there
    try:
        yield
        stays = stays or keep
    except (DemoError, KubectlError, LocalClusterError):
        stays = stays or keep  # for an investigation
        raise
    finally:
        if not stays:
            # A second Ctrl-C must not interrupt the clean-up.
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            end()


@contextmanager
def _controller(
    cluster: Cluster, keep: bool, screen: Screen, *, reports: bool, transfers: bool
) -> Iterator[tuple[str, bool]]:
    """Starts `tfjob-controller run` and waits until it is ready; yields its address and whether it remains.

    `cluster-down` finds it by its mark.
    """
    was_there = end_controllers(cluster.folder)
    log = cluster.folder / "logs" / "tfjob-controller.log"
    state.make_private(log.parent)
    host = _address_for_pods(cluster.kubeconfig)
    with ports.reserve(2, host) as (port, reports_port):
        address = f"127.0.0.1:{port}"
        flags = ["--kubeconfig", str(cluster.kubeconfig), *_serving(address)]
        flags += _taking_reports(f"{host}:{reports_port}") if reports else []
        flags += with_local_initializer(cluster.folder) if transfers else []
        screen.step("tfjob-controller run" + ("   (replaces that of an earlier demo)" if was_there else ""))
        screen.detail(f"log: {log}")
        begin = log.stat().st_size if log.exists() else 0
        identity = process.spawn(
            [sys.executable, "-m", "tfjob_controller", "run", *flags], log=log, mark=cluster.folder
        )
        with _ending(lambda: _stop_controller(identity, screen), keep, was_there):
            wait_ready(identity, address, "the controller", log, begin)
            screen.detail(f"ready: http://{address}/readyz, http://{address}/metrics")
            yield f"http://{address}", keep or was_there


def _serving(address: str) -> list[str]:
    return ["--metrics-bind-address", address, "--health-probe-bind-address", address]


def _taking_reports(address: str) -> list[str]:
    return ["--progress-server", "--progress-server-bind-address", address, f"--progress-server-url=https://{address}"]


def with_local_initializer(folder: Path) -> list[str]:
    """Returns the flag with which the controller uses the initializer's image that the nodes have."""
    config = folder / "controller-config.yaml"
    config.write_text(f"initializerImage: {images.INITIALIZER}\n")
    return [f"--controller-config-file={config}"]


def _address_for_pods(kubeconfig: Path) -> str:
    """Returns the address of this machine in the network of the API server, where pods can reach the controller."""
    server = urlsplit(Api.from_kubeconfig(kubeconfig).server)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unconnected:
        # Nothing is sent: the kernel only chooses the address.
        unconnected.connect((server.hostname, server.port or 443))
        return str(unconnected.getsockname()[0])


def _stop_controller(identity: Identity, screen: Screen) -> None:
    screen.step("stopping the controller")
    process.end([identity], grace_seconds=STOP_GRACE_SECONDS)


def end_controllers(folder: Path) -> bool:
    """Ends the controller of an earlier demo, since two would act on the same jobs; returns whether there was one."""
    found = False
    for identity in process.marked(folder):
        with suppress(OSError):
            if b"tfjob_controller\0run" in Path(f"/proc/{identity.pid}/cmdline").read_bytes():
                process.end([identity], grace_seconds=STOP_GRACE_SECONDS)
                found = True
    return found


def _end_command(cluster: Cluster) -> str:
    name = cluster.folder.name
    return "make cluster-down" + ("" if name == state.DEFAULT_NAME else f" NAME={name}")
