"""A real control plane on this machine: etcd, kube-apiserver, kube-controller-manager, kube-scheduler.

    plane = ControlPlane(stack_dir("default"), Options(), owner=process.myself())
    plane.start()                        # builds what is missing, returns when all four are ready
    plane.kubeconfig                     # Path, mode 0600, user `admin` in system:masters
    plane.server, plane.token            # https://127.0.0.1:PORT and admin's token
    plane.certificate                    # Path of the server's CA bundle
    plane.kubeconfig_of(User("system:node:node-1", ("system:nodes",)))   # for each of Options.users
    plane.kill("kube-apiserver")         # SIGKILL, returns when it has ended
    plane.start_program("kube-apiserver")   # same port, same flags; returns when it is ready
    plane.compact_etcd()
    plane.stop()                         # only the logs remain; also usable as a context manager

`ControlPlane.attach(folder)` gives the same object for a stack that another process started. `Options`
(localcluster.programs) takes the bind address, users and flags for each program:
nodes bind kube-apiserver to their bridge's address, say `kubelets=True, service_account_admission=True`, and add their
flags. Other programs of a stack (kubelets, ...) are started with `process.spawn(..., mark=folder)`, so that `stop`
finds them in any case; their own folders and files may be in the state folder and are removed with it.

Without `owner`, a stack runs until `stop` is called, here or in another process. With an owner, a small guard process
stops the stack when the owner has ended for any reason.

Not thread-safe. Errors are LocalClusterError: one line with the remedy.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from localcluster import binaries, ports, probe, process, programs, state
from localcluster.errors import LocalClusterError
from localcluster.kubernetesversions import default_minor, minor_of
from localcluster.process import Identity
from localcluster.programs import (
    ADMIN,
    APISERVER,
    CONTROLLER_MANAGER,
    ETCD,
    ETCD_SOCKET,
    SCHEDULER,
    Layout,
    Options,
    User,
)
from localcluster.report import Report, to_stderr
from localcluster.state import Condition, ProgramRecord, StackState

READY_TIMEOUT_SECONDS = 180.0
_POLL_SECONDS = 0.05
GUARD = "guard"
_TELLING = re.compile(r"\berror\b|\bfailed\b|not defined|unknown flag|panic:|fatal", re.IGNORECASE)


class ControlPlane:
    """One stack, identified by its state folder."""

    def __init__(
        self, folder: Path, options: Options | None = None, *, owner: Identity | None = None, report: Report = to_stderr
    ) -> None:
        self._folder = folder.absolute()
        self._options = options or Options()
        self._owner = owner
        self._report = report

    @classmethod
    def attach(cls, folder: Path, report: Report = to_stderr) -> Self:
        """Returns a stack that another process started. Raises LocalClusterError unless it runs."""
        plane = cls(folder, report=report)
        if (found := plane.condition) not in (Condition.RUNNING, Condition.BROKEN):
            raise LocalClusterError(f"no control plane runs in {folder} ({found.value})")
        return plane

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def folder(self) -> Path:
        return self._folder

    @property
    def logs(self) -> Path:
        return self._folder / "logs"

    @property
    def kubeconfig(self) -> Path:
        return self._folder / "kubeconfig"

    @property
    def certificate(self) -> Path:
        return self._folder / "pki" / "apiserver.crt"

    @property
    def server(self) -> str:
        return self.state().server

    @property
    def token(self) -> str:
        """The token of the admin, which must never be printed."""
        config = json.loads(self.kubeconfig.read_bytes())
        return str(config["users"][0]["user"]["token"])

    @property
    def condition(self) -> Condition:
        return state.condition(state.read(self._folder))

    @property
    def minor(self) -> str:
        """The minor version of Kubernetes that runs, such as 1.36."""
        version = self.state().kubernetes
        return minor_of(version) if version else default_minor()

    def kubeconfig_of(self, user: User) -> Path:
        return self.kubeconfig if user == ADMIN else self._folder / "users" / user.file_name

    def state(self) -> StackState:
        """Reads the record from disk. Raises LocalClusterError if there is none."""
        found = state.read(self._folder)
        if found is None:
            raise LocalClusterError(f"no control plane runs in {self._folder}")
        return found

    def start(self, timeout_seconds: float = READY_TIMEOUT_SECONDS) -> None:
        """Starts all programs and waits until they are ready; a stack that already runs in this folder is not changed.

        Remains of an earlier, broken or stale stack in the folder are removed first. After any error,
        Ctrl-C included, all is stopped again.
        """
        check_platform()
        paths = binaries.ensure_all(binaries.CONTROL_PLANE, self._report)
        with state.locked(self._folder):
            if self.condition is Condition.RUNNING:
                return
            self._stop()
            try:
                self._start(paths, time.monotonic() + timeout_seconds)
            except BaseException:
                self._stop()
                raise

    def stop(self) -> None:
        """Ends every process of this stack and removes its data and keys. Logs remain. Does nothing if none exists."""
        with state.locked(self._folder):
            self._stop()

    def kill(self, name: str, *, grace_seconds: float = 0.0) -> None:
        """Kills one program with SIGKILL, like a crash, or ends it first; returns when it has ended."""
        with state.locked(self._folder):
            record = self._record(self.state(), name)
            if record.identity is not None and process.end([record.identity], grace_seconds=grace_seconds):
                raise LocalClusterError(f"{name} (pid {record.identity.pid}) did not end")

    def start_program(self, name: str, timeout_seconds: float = READY_TIMEOUT_SECONDS) -> None:
        """Starts one program again with the same flags and waits until it is ready. It may already run."""
        with state.locked(self._folder):
            found = self.state()
            record = self._record(found, name)
            if record.identity is None or not process.is_alive(record.identity):
                self._spawn(found, name)
            self._wait(found, name, time.monotonic() + timeout_seconds)

    def add_program(self, name: str, argv: list[str], health: str, timeout_seconds: float) -> None:
        """Starts another program as part of this stack, and waits until it responds at the URL `health`."""
        with state.locked(self._folder):
            found = self.state()
            found.programs[name] = self._new_record(name, argv)
            found.health[name] = health
            self._spawn(found, name)
            self._wait(found, name, time.monotonic() + timeout_seconds)

    def compact_etcd(self) -> int:
        """Compacts etcd to the latest revision, also on disk, and returns that revision.

        kube-apiserver still answers old versions from its watch cache: restart it after this to see 410 Gone.
        """
        status = self._etcd("/v3/maintenance/status", {})
        revision = int(status["header"]["revision"])
        self._etcd("/v3/kv/compaction", {"revision": str(revision), "physical": True})
        return revision

    def is_healthy(self, name: str) -> bool:
        """Reports whether a program responds that it is ready."""
        return self._check(self.state(), name)()

    def _start(self, paths: dict[str, Path], deadline: float) -> None:
        started = time.monotonic()
        self._make_folders()
        with ports.reserve(3, self._options.bind_address) as (apiserver, manager, scheduler):
            layout = Layout(self._folder, apiserver, manager, scheduler)
            found = self._new_state(layout, paths)
            state.write(self._folder, found)
            if self._owner is not None:
                self._spawn(found, GUARD)
            tokens = programs.make_tokens(layout, self._options)
            for name in (ETCD, APISERVER):
                self._spawn(found, name)
                self._wait(found, name, deadline, tokens[ADMIN])
            for user, token in tokens.items():
                programs.write_kubeconfig(layout.kubeconfig_of(user), found.server, layout.certificate, token)
            programs.write_scheduler_config(layout)
            for name in (CONTROLLER_MANAGER, SCHEDULER):
                self._spawn(found, name)
            for name in (CONTROLLER_MANAGER, SCHEDULER):
                self._wait(found, name, deadline)
        found.ready = True
        state.write(self._folder, found)
        self._report(f"control plane {found.kubernetes} ready in {time.monotonic() - started:.1f} s")

    def _make_folders(self) -> None:
        for folder in (self._folder, self.logs, self._folder / "pki", self._folder / "users"):
            state.make_private(folder)
        for log in self.logs.glob("*.log"):
            log.unlink()

    def _new_state(self, layout: Layout, paths: dict[str, Path]) -> StackState:
        address = self._options.bind_address
        arguments = {
            ETCD: programs.etcd_flags(self._options),
            APISERVER: programs.apiserver_flags(layout, self._options),
            CONTROLLER_MANAGER: programs.controller_manager_flags(layout, self._options),
            SCHEDULER: programs.scheduler_flags(layout, self._options),
        }
        records = {name: self._new_record(name, [str(paths[name]), *flags]) for name, flags in arguments.items()}
        if self._owner is not None:
            records[GUARD] = self._new_record(GUARD, [sys.executable, "-m", "localcluster.guard", str(self._folder)])
        return StackState(
            boot_id=process.boot_id(),
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            kubeconfig=str(self.kubeconfig),
            server=f"https://{address}:{layout.apiserver_port}",
            kubernetes=binaries.kubernetes_version(),
            owner=self._owner,
            health={
                APISERVER: f"https://{address}:{layout.apiserver_port}/readyz",
                CONTROLLER_MANAGER: f"https://{programs.LOOPBACK}:{layout.controller_manager_port}/healthz",
                SCHEDULER: f"https://{programs.LOOPBACK}:{layout.scheduler_port}/healthz",
            },
            programs=records,
        )

    def _new_record(self, name: str, argv: list[str]) -> ProgramRecord:
        return ProgramRecord(argv=argv, log=str(self.logs / f"{name}.log"))

    def _record(self, found: StackState, name: str) -> ProgramRecord:
        if name not in found.programs:
            raise LocalClusterError(f"no program {name} in this stack (its programs: {', '.join(found.programs)})")
        return found.programs[name]

    def _spawn(self, found: StackState, name: str) -> None:
        record = self._record(found, name)
        environment = {"PYTHONPATH": str(binaries.HACK)} if name == GUARD else programs.ENVIRONMENT
        # etcd's snapshots, which have all Secrets, would be readable for everybody otherwise.
        record.identity = process.spawn(
            record.argv, log=Path(record.log), mark=self._folder, cwd=self._folder, env=environment, umask=0o077
        )
        state.write(self._folder, found)

    def _wait(self, found: StackState, name: str, deadline: float, token: str = "") -> None:
        """Waits until it is ready. Raises LocalClusterError with the log's last line if it ends or takes too long."""
        record = self._record(found, name)
        is_ready = self._check(found, name, token)
        while not is_ready():
            if record.identity is None or not process.is_alive(record.identity):
                raise LocalClusterError(
                    f"{name} ended while starting: {_last_words(Path(record.log))} (log: {record.log})"
                )
            if time.monotonic() > deadline:
                raise LocalClusterError(f"{name} did not become ready in time: see its log, {record.log}")
            time.sleep(_POLL_SECONDS)

    def _check(self, found: StackState, name: str, token: str = "") -> Callable[[], bool]:
        if name == ETCD:
            return lambda: probe.etcd_is_healthy(self._folder, ETCD_SOCKET)
        if name == GUARD:
            return lambda: True
        url = found.health[name]
        if name != APISERVER:
            return lambda: probe.is_healthy(url)
        return lambda: (
            self.certificate.exists() and probe.is_healthy(url, certificate=self.certificate, token=token or self.token)
        )

    def _etcd(self, path: str, body: object) -> dict[str, dict[str, str]]:
        try:
            return probe.etcd_call(self._folder, ETCD_SOCKET, "POST", path, body)
        except (OSError, ValueError) as error:
            raise LocalClusterError(f"etcd does not respond: {error}") from error

    def _stop(self) -> None:
        end_processes(self._folder)
        state.clear(self._folder)


def end_processes(folder: Path) -> None:
    """Kills every process that carries the folder's mark, the guard last. No data has to be saved.

    Raises LocalClusterError if some processes do not end, since they are uninterruptible in the kernel.
    """
    found = state.read(folder)
    guard = found.programs[GUARD].identity if found and GUARD in found.programs else None
    # This is done twice, since a program may have started another one while it was being ended.
    for _ in range(2):
        remaining = process.end(identity for identity in process.marked(folder) if identity != guard)
    if guard is not None and guard != process.myself():
        remaining += process.end([guard])
    if remaining:
        pids = ", ".join(str(identity.pid) for identity in remaining)
        raise LocalClusterError(f"processes {pids} of {folder} did not end; try again, or reboot")


def check_platform() -> None:
    """Raises LocalClusterError with the remedy on platforms where this package cannot work."""
    if sys.platform != "linux":
        raise LocalClusterError(
            "the local cluster needs Linux: name an existing cluster instead (kind, minikube, a real one): KUBECONFIG=…"
        )


def _last_words(log: Path) -> str:
    """Returns the line of a log that best explains why its program ended: usage texts may follow the error."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    telling = [line for line in lines if _TELLING.search(line)]
    return (telling or lines or ["it printed nothing"])[-1][:300]
