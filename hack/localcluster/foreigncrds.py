"""Installs the CRDs of other projects as published, to test that the objects that we write are valid.

    install_foreign_crds(api)         # PodGroups of Volcano and of coscheduling, Workloads and queues of Kueue
    install_provisioning_crd(api)     # ProvisioningRequests of the node autoscaler
    install_monitoring_crds(api)      # PodMonitors and PrometheusRules of the Prometheus operator

They are files of the projects' Go modules. The downloads are compared with the checksums here.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from localcluster.api import Api
from localcluster.crds import documents, install_crd
from localcluster.errors import LocalClusterError
from localcluster.gotoolchain import downloaded, go_of
from localcluster.program import HACK
from localcluster.report import to_stderr


@dataclass(frozen=True, slots=True)
class Published:
    """Files of a Go module; `checksum` is the module's, as in a go.sum."""

    module: str
    version: str
    checksum: str
    paths: tuple[str, ...] = ()

    def folder(self) -> Path:
        """Returns the folder of the module, which is downloaded first if necessary. Raises LocalClusterError."""
        go = go_of(HACK / "controlplane", to_stderr)
        with tempfile.TemporaryDirectory() as outside_of_modules:
            # The checksum is known here, so no database of checksums is used.
            found = downloaded(f"{self.module}@{self.version}", go, Path(outside_of_modules), GOSUMDB="off")
        if found.checksum != self.checksum:
            raise LocalClusterError(
                f"{self.module} {self.version}: its checksum is {found.checksum}, not {self.checksum}"
            )
        return Path(found.folder)

    def install(self, api: Api) -> None:
        """Applies the CRDs of the files. Raises LocalClusterError."""
        folder = self.folder()
        for path in self.paths:
            for crd in documents((folder / path).read_text()):
                install_crd(api, crd)


_GANGS = (
    Published(
        "sigs.k8s.io/kueue",
        "v0.12.3",
        "h1:BwpNe6CSwkP6Y9KiaWPB9eye4cj7RUMs5Q1vbzPNB3I=",
        tuple(
            f"config/components/crd/bases/kueue.x-k8s.io_{plural}.yaml"
            for plural in ("workloads", "localqueues", "clusterqueues", "resourceflavors")
        ),
    ),
    Published(
        "sigs.k8s.io/scheduler-plugins",
        "v0.33.5",
        "h1:9u4QAYbuoxa59aStrJKP4Bii2EQrZmGPN2tzvfs2gL0=",
        ("config/crd/bases/scheduling.x-k8s.io_podgroups.yaml",),
    ),
    Published(
        "volcano.sh/volcano",
        "v1.14.1",
        "h1:9eLs47iZeLgey6EcA1rHwVkU7HoBNm3UVpJZ4uhFJ7c=",
        ("config/crd/volcano/bases/scheduling.volcano.sh_podgroups.yaml",),
    ),
)
# The release of the module that Kueue uses; it has had the version v1 since then.
_PROVISIONING = Published(
    "k8s.io/autoscaler/cluster-autoscaler/apis",
    "v0.0.0-20240830133931-adfbe7e45277",
    "h1:BibFadVS+A7XR6HMReIuHoY9n8I+8oWR8/4xGgf2BDE=",
    ("config/crd/autoscaling.x-k8s.io_provisioningrequests.yaml",),
)
_MONITORING = Published(
    "github.com/prometheus-operator/prometheus-operator",
    "v0.83.0",
    "h1:qAKbm+45fqNGcn9sGTa1Ae2TM3KZuYA/uyoD2QKi9+o=",
    tuple(
        f"example/prometheus-operator-crd/monitoring.coreos.com_{plural}.yaml"
        for plural in ("podmonitors", "prometheusrules")
    ),
)


def install_foreign_crds(api: Api) -> None:
    for published in _GANGS:
        published.install(api)


def install_provisioning_crd(api: Api) -> None:
    _PROVISIONING.install(api)


def install_monitoring_crds(api: Api) -> None:
    _MONITORING.install(api)


def prepare() -> None:
    """Downloads all modules, so that the CRDs are installed fast. Raises LocalClusterError."""
    for published in (*_GANGS, _PROVISIONING, _MONITORING):
        published.folder()
