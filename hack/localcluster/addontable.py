"""The programs of other projects that can run beside a control plane: `ADDONS`. `addons` installs and starts them.

A row has the Go module, which CRDs and webhooks of that module are installed, and its programs with functions that
return their command lines. The manifests are read from the module in Go's module cache, whose checksum `go.sum` has;
nothing of them is kept here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from localcluster import state
from localcluster.errors import LocalClusterError
from localcluster.gobuild import COSCHEDULING, KUEUE, VOLCANO
from localcluster.program import HACK, required_version
from localcluster.programs import LOOPBACK

Settings = Mapping[str, Any]

# Where programs report that they are ready.
_READYZ, _HEALTHZ, _TLS = "http://{address}/readyz", "http://{address}/healthz", "https://{address}/healthz"


@dataclass(frozen=True, slots=True)
class Place:
    """Where one addon runs: its folder, its module's folder, its ports by program, and its kubeconfig."""

    folder: Path
    source: Path
    probes_ports: Mapping[str, int]
    webhook_port: int
    kubeconfig: Path

    @property
    def certificate(self) -> Path:
        """The certificate of the webhooks' server, which is its own authority."""
        return self.folder / "tls.crt"

    @property
    def key(self) -> Path:
        return self.folder / "tls.key"


@dataclass(frozen=True, slots=True)
class AddonProgram:
    """A program of an addon, by its name in `binaries.PROGRAMS`.

    `command` writes its files into the folder of the place, and returns its arguments. `health` is the address where it
    reports that it is ready.
    """

    name: str
    command: Callable[[Place, Settings], list[str]]
    health: str

    def health_address(self, place: Place) -> str:
        return self.health.format(address=f"{LOOPBACK}:{place.probes_ports[self.name]}")


@dataclass(frozen=True, slots=True)
class Webhooks:
    """The webhooks of an addon.

    `manifest` is a file of the module that contains the configurations; other objects in it are ignored. `prefix` is
    put before their names. `converted` are the CRDs that the addon converts between versions. The certificate
    names `service`; with a `secret`, the addon's certificate rotator expects it there.
    """

    manifest: str
    service: str
    secret: str = ""
    prefix: str = ""
    converted: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Addon:
    """Programs of another project, which start in this order. `crds` are folders with one CRD in each file."""

    name: str
    folder: str  # under hack/, with the go.mod
    module: str
    namespace: str
    crds: tuple[str, ...]
    programs: tuple[AddonProgram, ...]
    webhooks: Webhooks | None = None

    @property
    def namespace_selector(self) -> Mapping[str, Any]:
        """Selects the namespaces that are neither Kubernetes' own nor that of the addon."""
        namespaces = ["kube-system", self.namespace]
        expression = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": namespaces}
        return {"matchExpressions": [expression]}

    @property
    def version(self) -> str:
        return required_version(HACK / self.folder / "go.mod", self.module)


def _written(place: Place, name: str, config: Mapping[str, Any]) -> Path:
    path = place.folder / name
    state.write_private(path, json.dumps(config, indent=2).encode())
    return path


def _kueue_command(place: Place, settings: Settings) -> list[str]:
    config = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": "kueue-system",
        "health": {"healthProbeBindAddress": f"{LOOPBACK}:{place.probes_ports['kueue']}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": LOOPBACK, "port": place.webhook_port, "certDir": str(place.folder)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {
            "enable": True,
            "webhookServiceName": "kueue-webhook-service",
            "webhookSecretName": "kueue-webhook-server-cert",
        },
        "clientConnection": {"qps": 300, "burst": 500},
        "integrations": {"frameworks": ["batch/job"]},
        **settings,
    }
    path = _written(place, "config.json", config)
    # Its port for pending workloads is fixed, and several stacks may run.
    return [f"--config={path}", f"--kubeconfig={place.kubeconfig}", "--feature-gates=VisibilityOnDemand=false"]


_KUEUE = Addon(
    name="kueue",
    folder="kueue",
    module=KUEUE,
    namespace="kueue-system",
    crds=("config/components/crd/bases",),
    programs=(AddonProgram("kueue", _kueue_command, _READYZ),),
    webhooks=Webhooks(
        manifest="config/components/webhook/manifests.yaml",
        service="kueue-webhook-service",
        secret="kueue-webhook-server-cert",  # noqa: S106 - the name of an object
        prefix="kueue-",
        converted=frozenset(
            f"{plural}.kueue.x-k8s.io"
            for plural in ("localqueues", "clusterqueues", "cohorts", "workloads", "multikueueclusters")
        ),
    ),
)

# The webhooks that its manifest enables.
_VOLCANO_ADMISSION = (
    "/jobs/mutate,/jobs/validate,/podgroups/validate,/queues/mutate,/queues/validate,/hypernodes/validate,"
    "/cronjobs/validate"
)


def _volcano_flags(place: Place, program: str) -> list[str]:
    probes = f"--healthz-address={LOOPBACK}:{place.probes_ports[program]}"
    return [f"--kubeconfig={place.kubeconfig}", "--enable-healthz=true", probes]


def _volcano_admission(place: Place, _settings: Settings) -> list[str]:
    return [
        *_volcano_flags(place, "vc-webhook-manager"),
        f"--enabled-admission={_VOLCANO_ADMISSION}",
        f"--tls-cert-file={place.certificate}",
        f"--tls-private-key-file={place.key}",
        f"--ca-cert-file={place.certificate}",
        "--webhook-namespace=volcano-system",
        "--webhook-service-name=volcano-admission-service",
        f"--listen-address={LOOPBACK}",
        f"--port={place.webhook_port}",
    ]


def _volcano_controllers(place: Place, _settings: Settings) -> list[str]:
    return [*_volcano_flags(place, "vc-controller-manager"), "--leader-elect=false"]


def _volcano_scheduler(place: Place, settings: Settings) -> list[str]:
    """Its configuration is the module's default one, with these settings instead, such as `actions`."""
    default = place.source / "installer/helm/chart/volcano/config/volcano-scheduler.conf"
    path = _written(place, "scheduler.json", {**yaml.safe_load(default.read_text()), **settings})
    return [
        *_volcano_flags(place, "vc-scheduler"),
        f"--scheduler-conf={path}",
        "--disable-default-scheduler-config=true",  # Otherwise invalid settings would be ignored.
        "--leader-elect=false",
        f"--cache-dump-dir={place.folder}",
    ]


_VOLCANO = Addon(
    name="volcano",
    folder="volcano",
    module=VOLCANO,
    namespace="volcano-system",
    # Its controllers start only when all kinds are served.
    crds=("config/crd/volcano/bases", "config/crd/jobflow/bases"),
    programs=(
        AddonProgram("vc-webhook-manager", _volcano_admission, _TLS),
        AddonProgram("vc-controller-manager", _volcano_controllers, _HEALTHZ),
        AddonProgram("vc-scheduler", _volcano_scheduler, _HEALTHZ),
    ),
    webhooks=Webhooks("installer/volcano-development.yaml", "volcano-admission-service"),
)


def _coscheduling_scheduler(place: Place, settings: Settings) -> list[str]:
    """Its configuration is the module's own for this plugin, with these settings as the plugin's arguments.

    It is a second scheduler beside the cluster's, with the name that the module's Helm chart gives it.
    """
    config = yaml.safe_load((place.source / "manifests/coscheduling/scheduler-config.yaml").read_text())
    config["clientConnection"] = {"kubeconfig": str(place.kubeconfig), "qps": 300, "burst": 500}
    (profile,) = config["profiles"]
    profile["schedulerName"] = "scheduler-plugins-scheduler"
    (plugin,) = profile["pluginConfig"]
    plugin["args"] |= settings
    path = _written(place, "scheduler.json", config)
    return [
        f"--config={path}",
        "--authentication-skip-lookup",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={place.probes_ports['coscheduling-scheduler']}",
    ]


def _coscheduling_controller(place: Place, _settings: Settings) -> list[str]:
    probes = f"--probeAddr={LOOPBACK}:{place.probes_ports['coscheduling-controller']}"
    return [f"--kubeconfig={place.kubeconfig}", "--metricsAddr=0", probes]


_COSCHEDULING = Addon(
    name="coscheduling",
    folder="coscheduling",
    module=COSCHEDULING,
    namespace="scheduler-plugins",
    # Its controller starts only when ElasticQuotas are served, too.
    crds=("config/crd/bases",),
    programs=(
        AddonProgram("coscheduling-controller", _coscheduling_controller, _HEALTHZ),
        AddonProgram("coscheduling-scheduler", _coscheduling_scheduler, _TLS),
    ),
)


ADDONS = {addon.name: addon for addon in (_KUEUE, _VOLCANO, _COSCHEDULING)}


def addon(name: str) -> Addon:
    """Returns the addon of that name. Raises LocalClusterError."""
    if name not in ADDONS:
        raise LocalClusterError(f"no such addon: {name} (known addons: {', '.join(ADDONS)})", exit_code=2)
    return ADDONS[name]
