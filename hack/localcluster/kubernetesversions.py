"""Which version of Kubernetes the local cluster runs: the default one, or another minor version by `KUBERNETES=1.34`.

The default is what hack/controlplane/go.mod requires. Each folder hack/controlplane/<minor> locks another version
(docs/local-cluster.md). All of them use etcd and CoreDNS of the default one, whose APIs are the same.

`make` passes `KUBERNETES=…` on as an environment variable, which holds for one run and everything that it starts.
"""

from __future__ import annotations

import os
import re

from localcluster.errors import LocalClusterError
from localcluster.program import HACK, required_version

VARIABLE = "KUBERNETES"
KUBERNETES = "k8s.io/kubernetes"
CONTROL_PLANE_MODULE = HACK / "controlplane"
_MINOR = re.compile(r"1\.\d+")


def default_minor() -> str:
    """Returns the minor version that runs unless another one is chosen, such as 1.36."""
    return minor_of(required_version(CONTROL_PLANE_MODULE / "go.mod", KUBERNETES))


def known_minors() -> list[str]:
    """Returns the minor versions that can be built here, oldest first."""
    others = [folder.name for folder in CONTROL_PLANE_MODULE.iterdir() if (folder / "go.mod").exists()]
    return sorted([*others, default_minor()], key=lambda minor: int(minor.partition(".")[2]))


def chosen_minor() -> str:
    """Returns the minor version that `KUBERNETES` names. Raises LocalClusterError if it cannot be built here."""
    wanted = os.environ.get(VARIABLE, "").strip().removeprefix("v")
    if not wanted:
        return default_minor()
    if wanted not in known_minors():
        known = ", ".join(known_minors())
        raise LocalClusterError(f"{VARIABLE}={wanted}: this version is not locked here; choose one of {known}")
    return wanted


def module_folder(minor: str) -> str:
    """Returns the folder under hack/ whose go.mod locks this minor version."""
    return CONTROL_PLANE_MODULE.name if minor == default_minor() else f"{CONTROL_PLANE_MODULE.name}/{minor}"


def minor_of(version: str) -> str:
    """Returns 1.34 for v1.34.4. Raises LocalClusterError."""
    found = _MINOR.search(version)
    if found is None:
        raise LocalClusterError(f"{version} is no version of Kubernetes")
    return found[0]
