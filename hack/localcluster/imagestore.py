"""Images that are unpacked once for all nodes, so that a node starts with them instead of importing them.

Importing TensorFlow on each node takes long and needs more than a gigabyte. So images are imported once into a
containerd root in the user's cache, by a containerd that runs no containers. A node gets copies of its two small
databases, symbolic links to its content, and read-only bind mounts of its unpacked layers. Layers are not
copied, all nodes share one page cache, and changes of a node stay in its own folder.

The store only grows: layers that running nodes have mounted are never changed or removed. `localhost/x:<key>` keeps
every version of an image, while `:latest` is that of the last `ensure`. To free the space, remove the folder while no
nodes run.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from localcluster import binaries, images
from localcluster.errors import LocalClusterError
from localcluster.locks import locked
from localcluster.nodeconfig import UNUSED_PLUGINS
from localcluster.report import Report, silent
from localcluster.shell import CommandError, run

_DATABASES = ("io.containerd.metadata.v1.bolt/meta.db", "io.containerd.snapshotter.v1.overlayfs/metadata.db")
_SNAPSHOTS = "io.containerd.snapshotter.v1.overlayfs/snapshots"
_BLOBS = "io.containerd.content.v1.content/blobs/sha256"
_START_SECONDS = 20.0
CONTAINERD_PROGRAMS = ("containerd", "ctr")


class _Contents(msgspec.Struct):
    """The key of `:latest` by image name, and all keys in the store."""

    latest: dict[str, str] = {}
    keys: list[str] = []


class ImageStore:
    """The store in the user's cache. One process at a time changes or copies it; others wait."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._folder = images.folder() / "unpacked"
        self._root = self._folder / "containerd"

    @property
    def snapshots(self) -> Path:
        """The folder of unpacked layers, with a sub-folder for each."""
        return self._root / _SNAPSHOTS

    def keys(self) -> list[str]:
        """Returns the images that a node filled now would have, as "localhost/base:<key>"."""
        return [f"{name}:{key}" for name, key in self._read().latest.items()]

    def missing(self, names: Iterable[str]) -> list[str]:
        """Returns the images whose current version is not `:latest` in the store."""
        latest = self._read().latest
        return [name for name in map(images.plain, names) if latest.get(name) != images.key(name)]

    def ensure(self, names: Iterable[str]) -> None:
        """Builds and imports missing images, so that `:latest` is their current version. Raises LocalClusterError."""
        wanted = {images.plain(name): images.key(name) for name in names}
        for name in wanted:
            if f"{name}:{wanted[name]}" not in self._read().keys:
                images.ensure(name, self._report)
        with locked(self._folder / "lock"):
            contents = self._read()
            if any(contents.latest.get(name) != key for name, key in wanted.items()):
                self._change(contents, wanted)

    def fill(self, root: Path) -> list[str]:
        """Fills the containerd root of a new node; returns the ids of the layers to mount at `snapshots`."""
        with locked(self._folder / "lock"):
            for name in _DATABASES:
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(self._root / name, root / name)
            (root / _BLOBS).mkdir(parents=True)
            for blob in (self._root / _BLOBS).iterdir():
                (root / _BLOBS / blob.name).symlink_to(blob)
            found = sorted(path.name for path in self.snapshots.iterdir())
            for name in found:
                (root / _SNAPSHOTS / name).mkdir(parents=True)
            return found

    def _change(self, contents: _Contents, wanted: dict[str, str]) -> None:
        with _containerd(self._root) as ctr:
            for name, key in wanted.items():
                if f"{name}:{key}" not in contents.keys:
                    self._import(ctr, name, key)
                    contents.keys.append(f"{name}:{key}")
                run(*ctr, "images", "tag", "--force", f"{name}:{key}", *images.tagged(name))
                contents.latest[name] = key
        (self._folder / "contents.json").write_bytes(msgspec.json.format(msgspec.json.encode(contents)))

    def _import(self, ctr: list[str], name: str, key: str) -> None:
        started = time.monotonic()
        self._report(f"unpacking image {name} for all nodes")
        run(*ctr, "images", "import", "--local", "--snapshotter=overlayfs", images.path(name))
        run(*ctr, "images", "tag", "--force", f"{name}:latest", f"{name}:{key}")
        self._report(f"unpacked image {name} in {time.monotonic() - started:.0f} s, kept in {self._folder}")

    def _read(self) -> _Contents:
        try:
            return msgspec.json.decode((self._folder / "contents.json").read_bytes(), type=_Contents)
        except FileNotFoundError:
            return _Contents()


@contextlib.contextmanager
def _containerd(root: Path) -> Iterator[list[str]]:
    """Runs a containerd on `root` until the end of the block; yields the first words of a `ctr` command for it."""
    # The process that prepares nodes builds them too, and reports it.
    programs = binaries.ensure_all(CONTAINERD_PROGRAMS, silent)
    # In the temporary folder, since the path of a socket may have 107 characters at most.
    with tempfile.TemporaryDirectory(prefix="localcluster-images-") as scratch:
        socket, log = Path(scratch) / "socket", root.parent / "containerd.log"
        config = Path(scratch) / "config.toml"
        config.write_text(_configuration(root, scratch))
        argv = ["setpriv", "--pdeathsig", "KILL"]  # it must not outlive this process
        with log.open("wb") as output:
            server = subprocess.Popen([*argv, programs["containerd"], "--config", config], stdout=output, stderr=output)
        try:
            ctr = [str(programs["ctr"]), "--address", str(socket), "--namespace", "k8s.io"]
            _wait_for(ctr, server, log)
            yield ctr
        finally:
            server.terminate()
            server.wait(timeout=_START_SECONDS)


def _configuration(root: Path, scratch: str) -> str:
    unused = ("io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime")
    disabled = ", ".join(f'"{name}"' for name in (*unused, *UNUSED_PLUGINS))
    return f"""version = 3
root = "{root}"
state = "{scratch}/state"
disabled_plugins = [{disabled}]
[grpc]
address = "{scratch}/socket"
"""


def _wait_for(ctr: list[str], server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            run(*ctr, "version", timeout_seconds=5.0)
        except CommandError as error:
            if server.poll() is not None or time.monotonic() > deadline:
                raise LocalClusterError(f"containerd did not start: see its log, {log}") from error
            time.sleep(0.1)
        else:
            return
