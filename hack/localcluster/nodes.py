"""Real nodes of a control plane: `make cluster-up NODES=2`. This requires root on Linux with apt.

    plane = nodes.start(folder, 2, owner=None, report=to_stderr)    # returns when both are Ready
    nodes.load_image(folder, "localhost/tensorflow")                # builds it if necessary; no-op if nodes have it
    nodes.kill(folder, 2); nodes.start_node(folder, 2)
    nodes.stop(folder); plane.stop()

Nodes start with all images that `prepare` has ever unpacked for this user, at no cost: prepare large images before
`start` if possible. Everything that is created on the machine belongs to the stack's claim (localcluster.network),
which is made first and released last.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from localcluster import binaries, certificates, cgroups, debian, dns, images, network, node, nodeconfig, nodeready
from localcluster.api import Api
from localcluster.controlplane import ControlPlane
from localcluster.errors import LocalClusterError
from localcluster.imagestore import CONTAINERD_PROGRAMS, ImageStore
from localcluster.imageworker import ImageWorker
from localcluster.nodeconfig import Capacity, NodePlan
from localcluster.process import Identity
from localcluster.programs import Options, User
from localcluster.report import Report, to_stderr
from localcluster.shell import run

# A node that is not ready in this time is started again; on an idle machine it takes two seconds.
_PATIENCE_SECONDS = 60.0
_STARTS = 3
_LOG_LINES = 3
# The programs of containerd come first: images are unpacked with them while the others are built.
_PROGRAMS = (*CONTAINERD_PROGRAMS, *node.PROGRAMS, *binaries.CONTROL_PLANE, "coredns")
# The images of every stack's nodes; `prepare` and `load_image` add others.
DEFAULT_IMAGES = (images.PAUSE, images.BASE)
# A node that misses four reports of its status (every 5 s) is NotReady, and its pods are evicted 10 s later. The
# defaults (50 s and 300 s) suit large clusters; tests would wait for them.
GRACE_SECONDS = 20
TOLERATION_SECONDS = 10
_PROXY_USER = User("system:kube-proxy")


class _Record(msgspec.Struct):
    """The record that `start_node` reads."""

    count: int
    # The images that each node had when it was created, and those loaded since: "localhost/base:<key>".
    images: list[str]


def start(
    folder: Path,
    count: int,
    owner: Identity | None = None,
    report: Report = to_stderr,
    unsafe_no_fsync: bool = False,
) -> ControlPlane:
    """Starts a control plane with `count` Ready nodes. After any error, Ctrl-C included, everything is removed."""
    folder = folder.absolute()
    programs = prepare((), report)
    stop(folder)
    plan = network.claim(folder)
    plane = ControlPlane(folder, _options(plan, count, unsafe_no_fsync), owner=owner, report=report)
    try:
        network.make_bridge(plan)
        # With this kube-apiserver authenticates to kubelets, for logs and exec.
        certificate = _certificate(plan)
        certificates.self_signed(certificate, certificate.with_suffix(".key"), "/O=system:masters/CN=kube-apiserver")
        plane.start()
        _start_nodes(plane, plan, count, programs, report)
    except BaseException:
        stop(folder)
        plane.stop()
        raise
    return plane


def stop(folder: Path) -> None:
    """Removes the nodes, complete or not, and all that they created on the machine. Their logs remain."""
    plan = network.claim_of(folder.absolute())
    if plan is None:
        return
    for index in network.namespaces(plan):
        node.kill(plan, index, folder)
    cgroups.remove(plan.link)
    network.remove(plan)
    shutil.rmtree(folder / "nodes", ignore_errors=True)


def exists(folder: Path) -> bool:
    """Reports whether the stack has nodes or possibly remains of nodes."""
    return network.claim_of(folder.absolute()) is not None


def kill(folder: Path, number: int) -> None:
    """Kills a node: all its processes get SIGKILL, and no packet is sent any more. NotReady after GRACE_SECONDS."""
    plan = _plan_of(folder, number)
    node.kill(plan, number, folder)


def start_node(folder: Path, number: int, report: Report = to_stderr) -> None:
    """Starts a node that was killed, with its previous disk; returns when it is Ready."""
    plan = _plan_of(folder, number)
    if node.processes(plan, number, folder):
        raise LocalClusterError(f"node {number} is running already")
    plane = ControlPlane.attach(folder, report)
    # A node has the version of its control plane, whatever version is chosen now.
    programs = binaries.ensure_all(node.PROGRAMS, report, minor=plane.minor)
    node.kill(plan, number, folder)  # the remains of a node that ended by itself
    count, started = _read(folder).count, datetime.now(UTC)
    planned = _node_plan(plane, plan, number, count, programs)
    node.start(planned, count, folder)
    _wait_ready(plane, [planned], count, started, report)


def status(folder: Path) -> list[dict[str, object]]:
    """Returns an entry for each node. It does not use the API, so that it works when the API server is down."""
    plan = network.claim_of(folder.absolute())
    if plan is None or not _path(folder).exists():
        return []
    return [
        {
            "name": nodeconfig.node_name(number),
            "number": number,
            "address": plan.address(number),
            "condition": "running" if node.processes(plan, number, folder) else "dead",
        }
        for number in range(1, _read(folder).count + 1)
    ]


def prepare(names: Iterable[str], report: Report = to_stderr, *, tools: Iterable[str] = ()) -> dict[str, Path]:
    """Builds the programs and images of nodes, and the given images and tools; returns the paths of the programs.

    Images are built while programs are compiled: the former depends on network and disk, the latter on the processor.
    """
    check_machine(report)
    programs = [*_PROGRAMS, *tools]
    missing = ImageStore(report).missing([*DEFAULT_IMAGES, *names])
    packages = debian.IMAGE_PACKAGES if missing else {}
    if not binaries.is_built(binaries.PROGRAMS["runc"]):
        packages = packages | debian.RUNC_PACKAGES
    debian.ensure_packages(packages, report)
    if not missing:
        return binaries.ensure_all(programs, report)
    with ImageWorker(missing, report) as worker:
        paths = binaries.ensure_all(programs, report)
        worker.wait()
        return paths


def load_image(folder: Path, name: str, report: Report = to_stderr) -> None:
    """Loads an image on all running nodes of a stack."""
    record, wanted = _read(folder), f"{images.plain(name)}:{images.key(name)}"
    if wanted in record.images:
        return
    tar = images.ensure(name, report)
    report(f"loading {name} into the nodes")
    _change_images(folder, report, "import", "--local", "--snapshotter=overlayfs", str(tar))
    _write(folder, _Record(record.count, [*record.images, wanted]))


def tag_image(folder: Path, name: str, other: str, report: Report = to_stderr) -> None:
    """Adds another name to an image on the nodes (`load_image`), as if it had been pulled under that name."""
    _change_images(folder, report, "tag", "--force", f"{images.plain(name)}:latest", other)


def untag_image(folder: Path, other: str, report: Report = to_stderr) -> None:
    """Removes such a name again, as if the image had been deleted. Containers that run are not affected."""
    _change_images(folder, report, "rm", other)


def _change_images(folder: Path, report: Report, *arguments: str) -> None:
    ctr = binaries.ensure("ctr", report)
    plan = network.claim_of(folder.absolute())
    for number in range(1, _read(folder).count + 1):
        inside = node.enter(plan, number, folder) if plan else None
        if inside is not None:
            run(*inside, ctr, "--namespace=k8s.io", "images", *arguments)


def check_machine(report: Report) -> None:
    """Installs missing Debian packages. Raises LocalClusterError with the remedy if nodes cannot run here."""
    debian.require_root("real nodes")
    debian.ensure_packages(debian.NODE_PACKAGES, report)
    cgroups.hierarchies()
    network.load_kernel_module(report)


def _options(plan: network.Plan, count: int, unsafe_no_fsync: bool) -> Options:
    numbers = range(1, count + 1)
    return Options(
        bind_address=plan.host,
        kubelets=True,
        service_cidr=plan.services,
        service_account_admission=True,
        unsafe_no_fsync=unsafe_no_fsync,
        users=(dns.USER, _PROXY_USER, *(_node_user(number) for number in numbers)),
        apiserver_flags=(
            "--enable-admission-plugins=NodeRestriction",
            f"--kubelet-client-certificate={_certificate(plan)}",
            f"--kubelet-client-key={_certificate(plan).with_suffix('.key')}",
            "--kubelet-preferred-address-types=InternalIP",
            f"--default-not-ready-toleration-seconds={TOLERATION_SECONDS}",
            f"--default-unreachable-toleration-seconds={TOLERATION_SECONDS}",
        ),
        controller_manager_flags=(
            f"--node-monitor-grace-period={GRACE_SECONDS}s",
            "--node-monitor-period=2s",
        ),
    )


def _start_nodes(
    plane: ControlPlane, plan: network.Plan, count: int, programs: dict[str, Path], report: Report
) -> None:
    started, store = datetime.now(UTC), ImageStore(report)
    dns.start(plane, Api.from_kubeconfig(plane.kubeconfig), plan.host, programs["coredns"])
    _path(plane.folder).parent.mkdir(mode=0o700)
    _write(plane.folder, _Record(count, store.keys()))
    planned = [_node_plan(plane, plan, number, count, programs) for number in range(1, count + 1)]
    for one in planned:
        node.write(one, store)
        node.start(one, count, plane.folder)
    _wait_ready(plane, planned, count, started, report)
    report(f"{count} nodes ready in {(datetime.now(UTC) - started).total_seconds():.1f} s")


def _wait_ready(plane: ControlPlane, planned: list[NodePlan], count: int, since: datetime, report: Report) -> None:
    """Waits until these nodes are Ready. One that is not in time is started again, as a machine would be."""
    plans = {one.name: one for one in planned}

    def is_alive(name: str) -> bool:
        return bool(node.processes(plans[name].network, plans[name].index, plane.folder))

    with contextlib.closing(Api.from_kubeconfig(plane.kubeconfig)) as api:
        for attempt in range(1, _STARTS + 1):
            try:
                nodeready.wait(api, plans, since, _PATIENCE_SECONDS, is_alive)
            except nodeready.NotReadyError as error:
                failed = [plans[name] for name in error.names]
                shown = "".join(_log_ends(one.logs) for one in failed)
                if attempt == _STARTS:
                    raise LocalClusterError(f"{error}; their logs: {plane.logs}/node-*/*.log{shown}") from error
                report(f"{error}; starting again{shown}")
            else:
                return
            for one in failed:
                node.kill(one.network, one.index, plane.folder)
                node.start(one, count, plane.folder)


def _log_ends(logs: Path) -> str:
    """Returns the last lines of each of a node's logs, since the folder may be gone when the error is read."""
    lines = [
        f"\n{logs.name} {path.name}: {line}"
        for path in sorted(logs.glob("*.log"))
        for line in path.read_text(errors="replace").splitlines()[-_LOG_LINES:]
    ]
    return "".join(lines)


def _node_plan(plane: ControlPlane, plan: network.Plan, number: int, count: int, programs: dict[str, Path]) -> NodePlan:
    return NodePlan(
        index=number,
        network=plan,
        folder=_path(plane.folder).parent / nodeconfig.node_name(number),
        logs=plane.logs / nodeconfig.node_name(number),
        programs=programs,
        kubelet_config=plane.kubeconfig_of(_node_user(number)),
        proxy_config=plane.kubeconfig_of(_PROXY_USER),
        client_ca=_certificate(plan).read_text(),
        capacity=_capacity(count),
        restrict_oom_score=node.must_restrict_oom_score(),
    )


def _capacity(count: int) -> Capacity:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Capacity(os.cpu_count() or 1, memory >> 20, count)


def _node_user(number: int) -> User:
    return User(f"system:node:{nodeconfig.node_name(number)}", ("system:nodes",))


def _certificate(plan: network.Plan) -> Path:
    return plan.folder / "apiserver-to-kubelet.crt"


def _plan_of(folder: Path, number: int) -> network.Plan:
    plan = network.claim_of(folder.absolute())
    if plan is None or not 1 <= number <= (count := _read(folder).count):
        known = f"there are 1 to {count}" if plan else "this stack has none"
        raise LocalClusterError(f"no node {number}: {known}", exit_code=2)
    return plan


def _path(folder: Path) -> Path:
    return folder.absolute() / "nodes" / "nodes.json"


def _read(folder: Path) -> _Record:
    try:
        return msgspec.json.decode(_path(folder).read_bytes(), type=_Record)
    except FileNotFoundError as error:
        raise LocalClusterError(f"no nodes run in {folder}") from error


def _write(folder: Path, record: _Record) -> None:
    _path(folder).write_bytes(msgspec.json.encode(record))
