"""Where the demo plays: a cluster, the CRDs, a running controller. It ends what it started, unless that is kept."""

from __future__ import annotations

import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from demo.follow import DemoError
from demo.kubectl import Kubectl
from localcluster import binaries, images, nodes, ports, process, stack, state
from localcluster.errors import LocalClusterError
from localcluster.process import Identity

NODES = 2
NAMESPACE = "default"
CRDS = Path("manifests/base/crds")
READY_TIMEOUT_SECONDS = 30
# The state folder of the controller where the cluster is somebody else's.
GUEST_NAME = "demo"
STOP_GRACE_SECONDS = 10

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Stage:
    """`own_nodes` is 0 on a cluster that was there before."""

    kubectl: Kubectl
    own_nodes: int
    kept: bool


@contextmanager
def open_stage(root: Path, keep: bool, tell: Tell) -> Iterator[Stage]:
    """Cluster, CRDs and controller; raises `DemoError` in one line if one of them cannot be had."""
    try:
        existing = stack.existing_kubeconfig()
        if existing is not None and not stack.is_own(existing):
            cluster = _guest(Path(existing), tell)
        else:
            cluster = _own_cluster(keep, tell)
        with cluster as (folder, kubeconfig, own_nodes):
            kubectl = Kubectl(binaries.ensure("kubectl"), kubeconfig, NAMESPACE)
            tell(f"kubectl apply -f {CRDS}")
            kubectl.run("apply", "--server-side", "-f", str(root / CRDS))
            kubectl.run("wait", "--for=condition=Established", "-f", str(root / CRDS), "--timeout=30s")
            with _controller(folder, kubeconfig, keep, tell):
                yield Stage(kubectl, own_nodes, keep)
    except LocalClusterError as error:
        raise DemoError(str(error)) from error


Cluster = Iterator[tuple[Path, Path, int]]


@contextmanager
def _guest(kubeconfig: Path, tell: Tell) -> Cluster:
    """Somebody else's cluster: nothing is started, nothing is stopped."""
    tell(f"using the cluster of KUBECONFIG={kubeconfig}")
    folder = state.stack_dir(GUEST_NAME)
    state.make_private(folder)
    yield folder, kubeconfig, 0


@contextmanager
def _own_cluster(keep: bool, tell: Tell) -> Cluster:
    """The default stack with two nodes; one that runs already is used, and left running."""
    folder = state.stack_dir()
    was_there = state.condition(state.read(folder)) is state.Condition.RUNNING
    tell(f"a control plane and {NODES} nodes" + (", which run already" if was_there else ""))
    nodes.check_machine(tell)
    # Before the nodes are made: then they start with the image, instead of being given it one by one.
    nodes.prepare_images([images.TENSORFLOW], tell)
    plane = stack.up(folder, NODES, owner=None if keep else process.myself(), report=tell)
    nodes.load_image(folder, images.TENSORFLOW, tell)
    try:
        yield folder, plane.kubeconfig, NODES
    finally:
        if not keep and not was_there:
            tell("stopping the cluster")
            stack.down(folder)


@contextmanager
def _controller(folder: Path, kubeconfig: Path, keep: bool, tell: Tell) -> Iterator[None]:
    """`tfjob-controller run`, ready. It carries the stack's mark, so that `cluster-down` ends it too."""
    end_controllers(folder)
    logs = folder / "logs"
    state.make_private(logs)
    log = logs / "tfjob-controller.log"
    with ports.reserve(1) as (port,):
        flags = ["--metrics-bind-address", f"127.0.0.1:{port}", "--health-probe-bind-address", f"127.0.0.1:{port}"]
        command = [sys.executable, "-m", "tfjob_controller", "run", "--kubeconfig", str(kubeconfig), *flags]
        tell(f"tfjob-controller run --kubeconfig {kubeconfig}   (log: {log})")
        identity = process.spawn(command, log=log, mark=folder)
        try:
            _wait_ready(identity, port, log)
            yield
        finally:
            if not keep:
                process.end([identity], grace_seconds=STOP_GRACE_SECONDS)


def end_controllers(folder: Path) -> None:
    """End the controller of an earlier demo: two of them would work on the same jobs."""
    for identity in process.marked(folder):
        with suppress(OSError):
            if b"tfjob_controller\0run" in Path(f"/proc/{identity.pid}/cmdline").read_bytes():
                process.end([identity], grace_seconds=STOP_GRACE_SECONDS)


def _wait_ready(identity: Identity, port: int, log: Path) -> None:
    deadline, answer = time.monotonic() + READY_TIMEOUT_SECONDS, "nothing"
    while time.monotonic() < deadline:
        if not process.is_alive(identity):
            raise DemoError(f"the controller ended; {log} says why")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2):
                return
        except urllib.error.HTTPError as error:
            answer = error.read().decode(errors="replace").strip()
        except OSError as error:
            answer = str(error)
        time.sleep(0.1)
    raise DemoError(f"the controller was not ready within {READY_TIMEOUT_SECONDS} s: {answer} (log: {log})")
