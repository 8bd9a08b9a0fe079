"""Installs the CRDs of other projects as published, to test that the objects that we write are valid.

    install_foreign_crds(api)    # PodGroups of Volcano and of coscheduling, Workloads and queues of Kueue
    install_provisioning_crd(api)    # ProvisioningRequests of the node autoscaler

The CRDs of Kueue, scheduler-plugins and the autoscaler are in their Go modules, of which only these files are read; the
downloads are compared with the checksums here. Volcano's are generated from its types by controller-gen, as Volcano
does, and kept in the cache.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from localcluster import binaries
from localcluster.api import Api
from localcluster.crds import install_crd
from localcluster.errors import LocalClusterError
from localcluster.gobuild import go_of
from localcluster.program import HACK, cache_root, required_version
from localcluster.report import Report, to_stderr

_MODULE = HACK / "gangcrds"
_VOLCANO, _PACKAGE = "volcano.sh/apis", "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
_TIMEOUT_SECONDS = 300

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Published:
    """A file of a Go module; `checksum` is the module's, as in a go.sum."""

    module: str
    version: str
    checksum: str
    path: str


_KUEUE = tuple(
    Published(
        "sigs.k8s.io/kueue",
        "v0.12.3",
        "h1:BwpNe6CSwkP6Y9KiaWPB9eye4cj7RUMs5Q1vbzPNB3I=",
        f"config/components/crd/bases/kueue.x-k8s.io_{kind}.yaml",
    )
    for kind in ("workloads", "localqueues", "clusterqueues", "resourceflavors")
)
PUBLISHED = (
    *_KUEUE,
    Published(
        "sigs.k8s.io/scheduler-plugins",
        "v0.33.5",
        "h1:9u4QAYbuoxa59aStrJKP4Bii2EQrZmGPN2tzvfs2gL0=",
        "config/crd/bases/scheduling.x-k8s.io_podgroups.yaml",
    ),
)


# The release of the module that Kueue uses; it has had the version v1 since then.
_PROVISIONING = Published(
    "k8s.io/autoscaler/cluster-autoscaler/apis",
    "v0.0.0-20240830133931-adfbe7e45277",
    "h1:BibFadVS+A7XR6HMReIuHoY9n8I+8oWR8/4xGgf2BDE=",
    "config/crd/autoscaling.x-k8s.io_provisioningrequests.yaml",
)


def install_provisioning_crd(api: Api, report: Report = to_stderr) -> None:
    """Applies the CRD of ProvisioningRequests; it is downloaded first if necessary. Raises LocalClusterError."""
    install_crd(api, yaml.safe_load(fetched(go_of(_MODULE, report), _PROVISIONING).read_text()))


def install_foreign_crds(api: Api, report: Report = to_stderr) -> None:
    """Applies the CRDs; they are downloaded and generated first if necessary. Raises LocalClusterError."""
    for crd in _all(report):
        install_crd(api, crd)


def prepare(report: Report = to_stderr) -> None:
    """Downloads and generates the CRDs, so that they are installed fast. Raises LocalClusterError."""
    for _ in _all(report):
        pass
    fetched(go_of(_MODULE, report), _PROVISIONING)


def _all(report: Report) -> Iterator[Object]:
    go = go_of(_MODULE, report)
    for published in PUBLISHED:
        yield from yaml.safe_load_all(fetched(go, published).read_text())
    yield from yaml.safe_load_all(_volcano(go, report).read_text())


def fetched(go: Path, published: Published) -> Path:
    with tempfile.TemporaryDirectory() as folder:  # A folder outside of any Go module.
        command = [str(go), "mod", "download", "-json", f"{published.module}@{published.version}"]
        answer = json.loads(_output(command, Path(folder)) or "{}")
    if answer.get("Sum") != published.checksum:
        why = answer.get("Error") or f"its checksum is {answer.get('Sum')}, not {published.checksum}"
        raise LocalClusterError(f"{published.module} {published.version}: {why}")
    return Path(answer["Dir"]) / published.path


def _volcano(go: Path, report: Report) -> Path:
    kept = cache_root() / "crds" / f"volcano-{required_version(_MODULE / 'go.mod', _VOLCANO)}.yaml"
    if kept.is_file():
        return kept
    generator = binaries.ensure("controller-gen", report)
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
        arguments = ("crd:crdVersions=v1", f"paths={_PACKAGE}", f"output:crd:dir={folder}")
        _output([str(generator), *arguments], _MODULE, path=go.parent)
        (Path(folder) / "scheduling.volcano.sh_podgroups.yaml").replace(kept)
    return kept


def _output(command: list[str], folder: Path, path: Path | None = None) -> str:
    """Returns the output of a command; `path` comes first on PATH. Go reports a failed download in JSON."""
    # The checksums are known here and in go.sum, so no checksum database is used.
    environment = {**os.environ, "GOFLAGS": "", "GOSUMDB": "off", "GOTOOLCHAIN": "local", "GOWORK": "off"}
    if path is not None:
        environment["PATH"] = f"{path}{os.pathsep}{environment.get('PATH', '')}"
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise LocalClusterError(f"{command[0]} did not end within {_TIMEOUT_SECONDS} s") from None
    if done.returncode and not done.stdout:
        raise LocalClusterError(f"{' '.join(command)} failed: {done.stderr.strip().splitlines()[-1:]}")
    return done.stdout
