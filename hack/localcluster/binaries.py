"""Finds programs by name, or builds them from the Go modules that this repository pins.

    kube_apiserver = binaries.ensure("kube-apiserver")       # a Path
    paths = binaries.ensure_all(["etcd", "kube-apiserver"])  # missing programs of one module are built together

They are in the cache, `${XDG_CACHE_HOME:-~/.cache}/tfjob-controller/bin/<version>/<name>`, or are built into it
(`gobuild`). Programs on PATH are not used: they have other versions, and distributions build them otherwise.

The versions are in the go.mod files under hack/ only. That of Kubernetes is the default one, or the one that
`KUBERNETES=1.34` chooses (`kubernetesversions`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from localcluster.errors import LocalClusterError
from localcluster.gobuild import CONTAINERD, COSCHEDULING, KUEUE, TRAINING_OPERATOR, VOLCANO, build_missing
from localcluster.kubernetesversions import KUBERNETES, chosen_minor, module_folder
from localcluster.program import HACK, Program, cache_path, cache_root, is_executable, required_version
from localcluster.report import Report, to_stderr

__all__ = ["CONTROL_PLANE", "HACK", "PROGRAMS", "cache_path", "cache_root", "ensure", "ensure_all", "required_version"]

_PLUGINS = "github.com/containernetworking/plugins"


def _kubernetes(name: str) -> Program:
    return Program(name, "controlplane", f"{KUBERNETES}/cmd/{name}", KUBERNETES)


def _containerd(name: str) -> Program:
    return Program(name, "nodes", f"{CONTAINERD}/cmd/{name}", CONTAINERD)


def _plugin(name: str, kind: str) -> Program:
    return Program(name, "nodes", f"{_PLUGINS}/plugins/{kind}/{name}", _PLUGINS)


def _volcano(name: str) -> Program:
    return Program(f"vc-{name}", "volcano", f"{VOLCANO}/cmd/{name}", VOLCANO)


# How each program is built; `requirement` is what go.mod pins.
_ETCD = "go.etcd.io/etcd/server/v3"
_HELM = "helm.sh/helm/v4"
_METRICS_SERVER = "sigs.k8s.io/metrics-server"
_PROMETHEUS = "github.com/prometheus/prometheus"
_RUNC = "github.com/opencontainers/runc"

PROGRAMS = {
    program.name: program
    for program in (
        Program("etcd", "controlplane", _ETCD, _ETCD),
        _kubernetes("kube-apiserver"),
        _kubernetes("kube-controller-manager"),
        _kubernetes("kube-scheduler"),
        _kubernetes("kubelet"),
        _kubernetes("kube-proxy"),
        _kubernetes("kubectl"),
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
        # What Katib and Argo CD use to judge objects.
        Program("jobchecks", "jobchecks", ".", "github.com/tidwall/gjson"),
        Program("helm", "helm", f"{_HELM}/cmd/helm", _HELM),
        Program("kueue", "kueue", f"{KUEUE}/cmd/kueue", KUEUE),
        Program("metrics-server", "metricsserver", f"{_METRICS_SERVER}/cmd/metrics-server", _METRICS_SERVER),
        # Of its service discoveries only that of Kubernetes, without the clients of all clouds.
        Program(
            "prometheus",
            "prometheus",
            f"{_PROMETHEUS}/cmd/prometheus",
            _PROMETHEUS,
            tags="remove_all_sd,enable_kubernetes_sd",
        ),
        Program(
            "training-operator",
            "trainingoperator",
            f"{TRAINING_OPERATOR}/cmd/training-operator.v1",
            TRAINING_OPERATOR,
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
    build_missing([program for program in programs if not is_built(program)], report)
    return {program.name: cache_path(program) for program in programs}


def is_built(program: Program) -> bool:
    return is_executable(cache_path(program))


def kubernetes_version() -> str:
    """Returns the version of Kubernetes that runs here, such as v1.36.3."""
    return _program("kube-apiserver", chosen_minor()).version


def _program(name: str, minor: str) -> Program:
    if name not in PROGRAMS:
        raise LocalClusterError(f"no such program: {name} (known programs: {', '.join(PROGRAMS)})")
    program = PROGRAMS[name]
    return replace(program, folder=module_folder(minor)) if program.requirement == KUBERNETES else program
