"""Finds programs by name, or builds them from the Go modules that this repository pins.

    kube_apiserver = binaries.ensure("kube-apiserver")       # a Path
    paths = binaries.ensure_all(["etcd", "kube-apiserver"])  # missing programs of one module are built together

The order of the search:

1. `$KUBEBUILDER_ASSETS/<name>`: used as it is, since that variable was set deliberately.
2. PATH, only for the programs of Kubernetes and etcd, and only when `<name> --version` is of the pinned minor version
   (1.36, or the one that `KUBERNETES=1.34` chooses, see `kubernetesversions`): a kubectl or kubelet of another version
   would fail in confusing ways. A node's programs (containerd, runc, CNI, CoreDNS) are never taken from PATH:
   distributions ship other versions, built otherwise.
3. The cache: `${XDG_CACHE_HOME:-~/.cache}/tfjob-controller/bin/<version>/<name>`.
4. Built with Go (`gotoolchain`) into that cache: `-trimpath`, stripped, stamped with the version. A lock lets one run
   build and the others wait; a program appears in the cache in one rename.

The versions are in the go.mod files under hack/ only.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from localcluster.errors import LocalClusterError
from localcluster.gobuild import CONTAINERD, COSCHEDULING, KUEUE, VOLCANO, build_missing
from localcluster.gotoolchain import parse_version
from localcluster.kubernetesversions import KUBERNETES, chosen_minor, module_folder
from localcluster.program import HACK, Program, cache_path, cache_root, is_executable, required_version
from localcluster.report import Report, to_stderr

__all__ = ["CONTROL_PLANE", "HACK", "PROGRAMS", "cache_path", "cache_root", "ensure", "ensure_all", "required_version"]

_PLUGINS = "github.com/containernetworking/plugins"


def _kubernetes(name: str, *version_arguments: str) -> Program:
    return Program(
        name,
        "controlplane",
        f"{KUBERNETES}/cmd/{name}",
        KUBERNETES,
        version_arguments=version_arguments or ("--version",),
    )


def _containerd(name: str) -> Program:
    return Program(name, "nodes", f"{CONTAINERD}/cmd/{name}", CONTAINERD)


def _plugin(name: str, kind: str) -> Program:
    return Program(name, "nodes", f"{_PLUGINS}/plugins/{kind}/{name}", _PLUGINS)


def _volcano(name: str) -> Program:
    return Program(f"vc-{name}", "volcano", f"{VOLCANO}/cmd/{name}", VOLCANO)


# How each program is built; `requirement` is what go.mod pins.
_ETCD = "go.etcd.io/etcd/server/v3"
_HELM = "helm.sh/helm/v4"
_PROMETHEUS = "github.com/prometheus/prometheus"
_RUNC = "github.com/opencontainers/runc"

PROGRAMS = {
    program.name: program
    for program in (
        Program("etcd", "controlplane", _ETCD, _ETCD, version_arguments=("--version",)),
        _kubernetes("kube-apiserver"),
        _kubernetes("kube-controller-manager"),
        _kubernetes("kube-scheduler"),
        _kubernetes("kubelet"),
        _kubernetes("kube-proxy"),
        _kubernetes("kubectl", "version", "--client"),
        _containerd("containerd"),
        _containerd("ctr"),
        _containerd("containerd-shim-runc-v2"),
        Program("runc", "nodes", _RUNC, _RUNC, cgo=True, tags="seccomp"),
        _plugin("bridge", "main"),
        _plugin("loopback", "main"),
        _plugin("host-local", "ipam"),
        _plugin("portmap", "meta"),
        Program("coredns", "controlplane", "./coredns", "github.com/coredns/coredns"),
        # A kube-scheduler with the plugin, and scheduler-plugins' own controller.
        Program("coscheduling-scheduler", "coscheduling", ".", COSCHEDULING),
        Program("coscheduling-controller", "coscheduling", f"{COSCHEDULING}/cmd/controller", COSCHEDULING),
        Program("dockerfilelint", "dockerfilelint", ".", "github.com/moby/buildkit"),
        Program("helm", "helm", f"{_HELM}/cmd/helm", _HELM),
        Program("kueue", "kueue", f"{KUEUE}/cmd/kueue", KUEUE),
        # Of its service discoveries only that of Kubernetes, without the clients of all clouds.
        Program(
            "prometheus",
            "prometheus",
            f"{_PROMETHEUS}/cmd/prometheus",
            _PROMETHEUS,
            tags="remove_all_sd,enable_kubernetes_sd",
        ),
        _volcano("scheduler"),
        _volcano("controller-manager"),
        _volcano("webhook-manager"),
    )
}
CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")


def ensure(name: str, report: Report = to_stderr) -> Path:
    """Returns the path of a program, which is built first if necessary. Raises LocalClusterError."""
    return ensure_all([name], report)[name]


def ensure_all(names: Iterable[str], report: Report = to_stderr, *, minor: str | None = None) -> dict[str, Path]:
    """Returns the paths of several programs. Raises LocalClusterError for unknown names and for builds that fail.

    `minor` is the version of Kubernetes, such as 1.34; by default the chosen one.
    """
    of_version = minor or chosen_minor()
    programs = [_program(name, of_version) for name in dict.fromkeys(names)]
    found = {program.name: path for program in programs if (path := find(program)) is not None}
    return found | build_missing([program for program in programs if program.name not in found], report)


def find(program: Program) -> Path | None:
    """Returns the existing program, or None if it has to be built."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if assets and is_executable(Path(assets) / program.name):
        return Path(assets) / program.name
    on_path = shutil.which(program.name) if program.version_arguments else None
    if on_path and _fits(on_path, program.version_arguments, program.version):
        return Path(on_path)
    cached = cache_path(program)
    return cached if is_executable(cached) else None


def kubernetes_version() -> str:
    """Returns the version of Kubernetes that runs here, such as v1.36.3."""
    return _program("kube-apiserver", chosen_minor()).version


def _program(name: str, minor: str) -> Program:
    if name not in PROGRAMS:
        raise LocalClusterError(f"no such program: {name} (known programs: {', '.join(PROGRAMS)})")
    program = PROGRAMS[name]
    return replace(program, folder=module_folder(minor)) if program.requirement == KUBERNETES else program


@functools.cache
def _fits(path: str, version_arguments: tuple[str, ...], version: str) -> bool:
    """Reports whether a program on PATH has the same minor version as the pinned one."""
    try:
        done = subprocess.run([path, *version_arguments], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return parse_version(done.stdout)[:2] == parse_version(version)[:2]
