"""Installs Debian packages on this machine, and fetches the files of a small Debian system for images.

Packages come from the sources of this machine's apt, which names the mirror and the proxy. No host is named here.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from localcluster import state
from localcluster.errors import LocalClusterError
from localcluster.report import Report
from localcluster.shell import CommandError, run

EXISTING_CLUSTER = "or use an existing cluster: KUBECONFIG=/path/to/kubeconfig make …"
# A program (or a file's path) that proves a package to be there; where it is missing, the package is installed.
NODE_PACKAGES = {
    "ip": "iproute2",
    "nft": "nftables",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "tini": "tini",
    "openssl": "openssl",
    "nsenter": "util-linux",
    "mount": "mount",
}
IMAGE_PACKAGES = {"debootstrap": "debootstrap", "tar": "tar"}
# For runc, the one program here that is built with C.
RUNC_PACKAGES = {
    "cc": "gcc",
    "/usr/include/stdio.h": "libc6-dev",
    "/usr/include/seccomp.h": "libseccomp-dev",
    "pkg-config": "pkg-config",
}


def require_root(what: str) -> None:
    """Raises LocalClusterError, with the remedy, unless this process runs as root."""
    if os.geteuid() != 0:
        raise LocalClusterError(f"{what} need root: run this as root, {EXISTING_CLUSTER}")


def ensure_packages(wanted: Mapping[str, str], report: Report) -> None:
    """Installs missing packages of `wanted` (proof → package) and reports them in a line. Raises LocalClusterError."""
    install(sorted({package for proof, package in wanted.items() if not _is_there(proof)}), report)


def install(packages: Iterable[str], report: Report) -> None:
    """Runs apt-get install, if there is anything to install."""
    missing = list(packages)
    if not missing:
        return
    if shutil.which("apt-get") is None:
        raise LocalClusterError(f"real nodes need {', '.join(missing)}: install them, {EXISTING_CLUSTER}")
    if os.geteuid() != 0:
        raise LocalClusterError(f"as root: apt-get install {' '.join(missing)}; {EXISTING_CLUSTER}")
    report(f"installing Debian packages: {' '.join(missing)}")
    with state.locked(state.state_root(), "apt.lock"):  # apt fails while another process holds its own lock
        _apt_get(["--yes", "--no-install-recommends", "install", *missing])


def _apt_get(arguments: Sequence[str], cwd: Path | None = None) -> None:
    """Runs apt-get, once more with fresh lists if it fails: those of a new machine are empty or old."""
    argv = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", *arguments]
    try:
        run(*argv, cwd=cwd)
    except CommandError:
        run("apt-get", "-qq", "update")
        run(*argv, cwd=cwd)


def bootstrap(target: Path, include: Iterable[str], report: Report, suite: str = "") -> None:
    """Installs a minimal Debian or Ubuntu of this machine's release, or of `suite`, in `target`, with these packages.

    Needs root; takes half a minute. Raises LocalClusterError.
    """
    suite = suite or codename()
    report(f"fetching a minimal {suite} from this machine's apt mirror (half a minute)")
    proxy = _apt_proxy()
    # It runs in its own mount namespace, so that the mounts of debootstrap in `target` always end with it.
    run(
        *("unshare", "--mount", "env", *([f"http_proxy={proxy}"] if proxy else []), "debootstrap", "--variant=minbase"),
        "--components=main",
        f"--include={','.join(include)}",
        *(suite, target, _mirror()),
    )


def fetch(packages: Iterable[str], status: Path, cache: Path) -> None:
    """Downloads the .deb files of these packages, and of dependencies missing in dpkg's `status`, to `cache`/archives.

    This machine's apt resolves and downloads them, without changing its own state.
    """
    (cache / "archives/partial").mkdir(parents=True)
    settings = [f"Dir::State::status={status}", f"Dir::Cache={cache}", "Debug::NoLocking=true"]
    options = [word for setting in settings for word in ("-o", setting)]
    _apt_get([*options, "--yes", "--no-install-recommends", "--download-only", "install", *packages])


def download(package: str, folder: Path) -> None:
    """Downloads the .deb file of one package to `folder`, without installing it."""
    _apt_get(["-o", "APT::Sandbox::User=root", "download", package], cwd=folder)


def codename() -> str:
    """Returns the code name of this machine's release, such as "bookworm". Raises LocalClusterError."""
    with contextlib.suppress(OSError, KeyError):
        return platform.freedesktop_os_release()["VERSION_CODENAME"]
    raise LocalClusterError(
        f"images are built from Debian's or Ubuntu's packages, which this system lacks; {EXISTING_CLUSTER}"
    )


def _mirror() -> str:
    """Returns the mirror of this machine's main archive. Raises LocalClusterError if apt has none."""
    wanted = ["--format=$(SITE)", "Created-By: Packages", f"Release: {codename()}", "Component: main"]
    for _ in range(2):
        if mirrors := run("apt-get", "indextargets", *wanted).splitlines():
            return mirrors[0]
        run("apt-get", "-qq", "update")  # Targets whose lists were never fetched are not shown.
    raise LocalClusterError(
        f"no apt source of this machine holds {codename()}/main; images cannot be built, {EXISTING_CLUSTER}"
    )


def _apt_proxy() -> str:
    return run("apt-config", "shell", "PROXY", "Acquire::http::Proxy").strip().removeprefix("PROXY=").strip("'\n")


def _is_there(proof: str) -> bool:
    if proof.startswith("/"):
        return Path(proof).exists()
    # The PATH of an ordinary user lacks the folders of system programs.
    return shutil.which(proof, path=f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin") is not None
