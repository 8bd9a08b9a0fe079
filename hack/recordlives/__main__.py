"""`make record-lives`: plays the cases of the matrix on two real nodes, and writes test/data/lives/<Kubernetes>/….

It uses the stack of NAME, or the default one, which is started if it does not run, and has a namespace and a controller
of its own. Cases with a file are skipped. Progress goes to standard error. It needs root on Linux.

CASES       only cases whose name matches one of these patterns, such as 'worker/exit-*,ps/*'
AGAIN       1: also those that have a file
PARALLEL    cases that are played at the same time, 8
NAME        name of the stack (make cluster-up NAME=…)
KUBERNETES  minor version of a stack that is started, such as 1.34
"""

from __future__ import annotations

import contextlib
import fnmatch
import itertools
import os
import secrets
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from localcluster import nodes, ports, process, stack, state
from localcluster.api import Api
from localcluster.crds import install_crds
from localcluster.errors import LocalClusterError
from localcluster.follower import Follower
from localcluster.images import INITIALIZER
from localcluster.kubernetesversions import chosen_minor
from localcluster.ourprogram import PROBES, OurProgram
from localcluster.programs import LOOPBACK
from localcluster.report import to_stderr
from recordlives.manifests import CLAIM, image
from recordlives.matrix import NODE_EVENTS, Case, cases
from recordlives.play import Player
from recordlives.recorder import Recorder

NODES = 2
_LIVES = Path(__file__).resolve().parents[2] / "test/data/lives"


def wanted(output: Path, patterns: Sequence[str], *, again: bool) -> list[Case]:
    """Returns the cases to play."""
    return [
        case
        for case in cases()
        if any(fnmatch.fnmatch(case.name, pattern) for pattern in patterns)
        and (again or not (output / f"{case.name}.txt").exists())
    ]


def batches(chosen: Sequence[Case]) -> tuple[list[list[Case]], list[list[Case]]]:
    """Returns the cases that can be played beside each other, and groups that need a node for themselves."""
    single = [[case] for case in chosen if case["event"] not in NODE_EVENTS]
    groups = ([case for case in chosen if case["event"] == event] for event in NODE_EVENTS)
    return single, [group for group in groups if group]


def play(player: Player, chosen: Sequence[Case], parallel: int) -> int:
    """Plays the cases and returns how many could not be recorded."""
    counter, failures = itertools.count(1), 0
    single, together = batches(chosen)
    for group, threads in ((single, parallel), (together, 1)):
        with ThreadPoolExecutor(threads) as pool:
            futures = {pool.submit(player.play, batch): batch for batch in group}
            try:
                for future in as_completed(futures):
                    if (error := future.exception()) is not None:
                        failures += len(futures[future])
                    lines = [f"{case.name}: {error!r}" for case in futures[future]] if error else future.result()
                    for line in lines:
                        to_stderr(f"{next(counter)} of {len(chosen)}  {line}")
            except KeyboardInterrupt:
                player.stopping.set()
                pool.shutdown(cancel_futures=True)
                raise
    return failures


@contextlib.contextmanager
def open_player(folder: Path, chosen: Sequence[Case], output: Path) -> Iterator[Player]:
    """Starts what is missing. Raises LocalClusterError."""
    needed = {image(case) for case in chosen}
    needed |= {INITIALIZER for case in chosen if case["checkpoint"] == "on" or case["composition"] == "own-storage"}
    was_there = state.condition(state.read(folder)) is state.Condition.RUNNING
    nodes.prepare(sorted(needed))
    with contextlib.ExitStack() as open_:
        if not was_there:
            open_.callback(stack.down, folder)
        plane = stack.up(folder, NODES, owner=None if was_there else process.myself())
        for name in sorted(needed):
            nodes.load_image(folder, name)
        api = Api.from_kubeconfig(plane.kubeconfig, pool_size=32)
        install_crds(api)
        scratch = Path(tempfile.mkdtemp(prefix="record-lives-"))
        open_.callback(shutil.rmtree, scratch, ignore_errors=True)
        namespace = f"lives-{secrets.token_hex(3)}"
        open_.enter_context(_namespace(api, namespace, scratch))
        player = Player(api, folder, namespace, scratch / "marks", output)
        for kind, path in (("pod", "/api/v1"), ("job", "/apis/batch/v1")):
            recorder = Recorder(kind, player.recordings)
            follower = Follower(api, f"{path}/namespaces/{namespace}/{kind}s", recorder)
            open_.callback(follower.stop)
            follower.start()
        open_.enter_context(_controller(plane.kubeconfig, namespace, scratch, plane.logs))
        yield player


@contextlib.contextmanager
def _namespace(api: Api, name: str, scratch: Path) -> Iterator[None]:
    """Has a claim that pods on both nodes can mount, for initializers and exporters."""
    size, shared = {"storage": "1Gi"}, {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    disk = {"path": str(scratch / CLAIM), "type": "DirectoryOrCreate"}
    volume = {**shared, "capacity": size, "hostPath": disk, "claimRef": {"namespace": name, "name": CLAIM}}
    claim = {**shared, "volumeName": name, "resources": {"requests": size}}
    api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    try:
        api.create("/api/v1/persistentvolumes", {"metadata": {"name": name}, "spec": volume})
        api.create(f"/api/v1/namespaces/{name}/persistentvolumeclaims", {"metadata": {"name": CLAIM}, "spec": claim})
        yield
    finally:
        api.delete(f"/api/v1/namespaces/{name}")
        api.delete(f"/api/v1/persistentvolumes/{name}")


@contextlib.contextmanager
def _controller(kubeconfig: Path, namespace: str, scratch: Path, logs: Path) -> Iterator[None]:
    config = scratch / "controller.yaml"
    config.write_text(f"initializerImage: {INITIALIZER}\n")
    with ports.reserve(1, LOOPBACK) as (probes,):
        flags = (f"--namespace={namespace}", f"--controller-config-file={config}")
        log = logs / f"controller-{namespace}.log"
        controller = OurProgram("run", kubeconfig, {PROBES: probes}, *flags, log=log, mark=scratch)
        controller.start()
        try:
            controller.wait_ready()
            yield
        finally:
            controller.end(grace_seconds=10.0)


def main() -> int:
    """Runs the command and returns its exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder = state.stack_dir(os.environ.get("NAME") or state.DEFAULT_NAME)
    try:
        output = _LIVES / chosen_minor()
        chosen = wanted(output, (os.environ.get("CASES") or "*").split(","), again=bool(os.environ.get("AGAIN")))
        to_stderr(f"{len(chosen)} of {len(cases())} cases, with Kubernetes {output.name}")
        if not chosen:
            return 0
        with open_player(folder, chosen, output) as player:
            failures = play(player, chosen, int(os.environ.get("PARALLEL") or 8))
            return 1 if failures else 0
    except KeyboardInterrupt:
        to_stderr("interrupted: what was started has been stopped")
        return 128 + signal.SIGINT
    except (LocalClusterError, ValueError) as error:
        to_stderr(f"record-lives: {error}")
        return 2


if __name__ == "__main__":
    sys.exit(main())
