"""Programs of other projects beside a control plane: `make cluster-up WITH=kueue`.

    addons.start(plane, "kueue")                      # builds it if necessary; returns when it is ready
    addons.start(plane, "kueue", {"waitForPodsReady": …})   # with other settings; a running one is restarted

An addon is a row of `ADDONS`: the program and its Go module, which CRDs and webhooks of that module are installed, and
a function that returns its command line. The manifests are read from the module in Go's module cache, whose checksum
`go.sum` has; nothing of them is kept here. The program runs as the cluster's administrator, with its webhooks on
loopback, where the API server calls them (`webhooks`). It is a program of the stack: `cluster-status` shows it,
`cluster-down` ends it.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from localcluster import binaries, ports, process, state
from localcluster.api import Api
from localcluster.controlplane import ControlPlane
from localcluster.crds import install_crd
from localcluster.errors import LocalClusterError
from localcluster.gobuild import KUEUE, go_environment, go_of
from localcluster.program import HACK, required_version
from localcluster.programs import LOOPBACK
from localcluster.report import Report, to_stderr
from localcluster.state import ProgramRecord
from localcluster.webhooks import Certificates, at_address, make_certificates

Object = dict[str, Any]
Settings = Mapping[str, Any]

_POLL_SECONDS = 0.1
# Its caches are filled, and its certificates recorded in CRDs of a megabyte each, before it is ready.
_READY_SECONDS = 180.0
_DOWNLOAD_SECONDS = 600
_PORTS = "ports.json"


@dataclass(frozen=True, slots=True)
class Place:
    """Where one addon runs: its folder, its ports and its kubeconfig."""

    folder: Path
    probes_port: int
    webhook_port: int
    kubeconfig: Path

    @property
    def certificates(self) -> Path:
        return self.folder / "certificates"


@dataclass(frozen=True, slots=True)
class Addon:
    """A program of another project.

    `crds` and `webhooks` are paths in the module: a folder with one CRD in each file, and a file of webhook
    configurations. `converted` are the CRDs that it converts between versions. `selector` is the namespaceSelector of
    webhooks for kinds of other groups than `group`. `command` writes its files into the folder of the place, and
    returns its arguments.
    """

    name: str
    folder: str  # under hack/, with the go.mod
    module: str
    group: str
    namespace: str
    crds: str
    converted: frozenset[str]
    webhooks: str
    service: str
    secret: str
    authority: str
    command: Callable[[Place, Settings], list[str]]
    selector: Mapping[str, Any]

    @property
    def version(self) -> str:
        return required_version(HACK / self.folder / "go.mod", self.module)


def _kueue_command(place: Place, settings: Settings) -> list[str]:
    config = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": "kueue-system",
        "health": {"healthProbeBindAddress": f"{LOOPBACK}:{place.probes_port}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": LOOPBACK, "port": place.webhook_port, "certDir": str(place.certificates)},
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
    path = place.folder / "config.json"
    state.write_private(path, json.dumps(config, indent=2).encode())
    # Its port for pending workloads is fixed, and several stacks may run.
    return [f"--config={path}", f"--kubeconfig={place.kubeconfig}", "--feature-gates=VisibilityOnDemand=false"]


ADDONS = {
    addon.name: addon
    for addon in (
        Addon(
            name="kueue",
            folder="kueue",
            module=KUEUE,
            group="kueue.x-k8s.io",
            namespace="kueue-system",
            crds="config/components/crd/bases",
            converted=frozenset(
                f"{plural}.kueue.x-k8s.io"
                for plural in ("localqueues", "clusterqueues", "cohorts", "workloads", "multikueueclusters")
            ),
            webhooks="config/components/webhook/manifests.yaml",
            service="kueue-webhook-service",
            secret="kueue-webhook-server-cert",  # noqa: S106 - the name of an object
            authority="kueue-ca",
            command=_kueue_command,
            selector={
                "matchExpressions": [
                    {
                        "key": "kubernetes.io/metadata.name",
                        "operator": "NotIn",
                        "values": ["kube-system", "kueue-system"],
                    }
                ]
            },
        ),
    )
}


def addon(name: str) -> Addon:
    """Returns the addon of that name. Raises LocalClusterError."""
    if name not in ADDONS:
        raise LocalClusterError(f"no such addon: {name} (known addons: {', '.join(ADDONS)})", exit_code=2)
    return ADDONS[name]


def start(plane: ControlPlane, name: str, settings: Settings | None = None, report: Report = to_stderr) -> None:
    """Installs and starts an addon, and waits until it is ready. A running one is restarted with these settings."""
    chosen = addon(name)
    program = binaries.ensure(chosen.name, report)
    source = module_folder(chosen, report)
    started = time.monotonic()
    stop(plane, name)
    place = _installed(plane, chosen) or _installed_now(plane, chosen, source)
    _spawn(plane, chosen, [str(program), *chosen.command(place, settings or {})], place)
    _wait(plane, chosen)
    report(f"{chosen.name} {chosen.version} ready in {time.monotonic() - started:.1f} s")


def stop(plane: ControlPlane, name: str) -> None:
    """Ends the addon's process, if it runs. Its objects stay."""
    record = plane.state().programs.get(name)
    if record is not None and record.identity is not None and process.end([record.identity], grace_seconds=2.0):
        raise LocalClusterError(f"{name} (pid {record.identity.pid}) did not end")


def is_ready(plane: ControlPlane, name: str) -> bool:
    """Reports whether the addon runs on this stack, and is ready."""
    return name in plane.state().programs and plane.is_healthy(name)


def module_folder(chosen: Addon, report: Report = to_stderr) -> Path:
    """Returns the folder of the addon's module in Go's module cache, which is downloaded first if necessary."""
    own = HACK / chosen.folder
    command = [str(go_of(own, report)), "mod", "download", "-json", chosen.module]
    try:
        done = subprocess.run(
            command,
            cwd=own,
            env=go_environment(),
            capture_output=True,
            text=True,
            timeout=_DOWNLOAD_SECONDS,
            check=False,
        )
        answer = json.loads(done.stdout or "{}")
    except (subprocess.TimeoutExpired, ValueError) as error:
        raise LocalClusterError(f"{chosen.module} was not downloaded: {error}") from error
    if "Dir" not in answer:
        raise LocalClusterError(f"{chosen.module}: {answer.get('Error') or done.stderr.strip() or 'not downloaded'}")
    return Path(answer["Dir"])


def _installed(plane: ControlPlane, chosen: Addon) -> Place | None:
    """Returns where the addon ran before on this stack: its manifests name those ports."""
    with contextlib.suppress(FileNotFoundError):
        found = json.loads((plane.folder / chosen.name / _PORTS).read_bytes())
        return Place(plane.folder / chosen.name, found["probes"], found["webhook"], plane.kubeconfig)
    return None


def _installed_now(plane: ControlPlane, chosen: Addon, source: Path) -> Place:
    with ports.reserve(2, LOOPBACK) as (probes_port, webhook_port):
        place = Place(plane.folder / chosen.name, probes_port, webhook_port, plane.kubeconfig)
        certificates = _certificates(chosen, place)
        api = Api.from_kubeconfig(plane.kubeconfig)
        try:
            _install(api, chosen, source, place, certificates)
        finally:
            api.close()
        kept = {"probes": probes_port, "webhook": webhook_port}
        state.write_private(place.folder / _PORTS, json.dumps(kept).encode())
        return place


def _certificates(chosen: Addon, place: Place) -> Certificates:
    names = [f"{chosen.service}.{chosen.namespace}.svc"]
    certificates = make_certificates(chosen.authority, names)
    state.make_private(place.folder)
    state.make_private(place.certificates)
    files = {"ca.crt": certificates.ca, "tls.crt": certificates.server, "tls.key": certificates.server_key}
    for name, content in files.items():
        state.write_private(place.certificates / name, content)
    return certificates


def _install(api: Api, chosen: Addon, source: Path, place: Place, certificates: Certificates) -> None:
    for crd in crds(chosen, source, place.webhook_port, certificates.ca):
        install_crd(api, crd)
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": chosen.namespace}}
    api.apply(f"/api/v1/namespaces/{chosen.namespace}", namespace)
    secret = certificates.secret(chosen.namespace, chosen.secret)
    api.apply(f"/api/v1/namespaces/{chosen.namespace}/secrets/{chosen.secret}", secret)
    for config in webhook_configurations(chosen, source, place.webhook_port, certificates.ca):
        plural = config["kind"].lower() + "s"
        api.apply(f"/apis/admissionregistration.k8s.io/v1/{plural}/{config['metadata']['name']}", config)


def crds(chosen: Addon, source: Path, port: int, ca: bytes) -> Iterator[Object]:
    """Yields the CRDs of the module, with the addon's conversion webhook on this machine."""
    for path in sorted((source / chosen.crds).glob("*.yaml")):
        crd: Object = yaml.safe_load(path.read_text())
        if crd["metadata"]["name"] in chosen.converted:
            client = at_address({"service": {"path": "/convert"}}, port, ca)
            webhook = {"clientConfig": client, "conversionReviewVersions": ["v1"]}
            crd["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
        yield crd


def webhook_configurations(chosen: Addon, source: Path, port: int, ca: bytes) -> Iterator[Object]:
    """Yields the webhook configurations of the module, which call this machine and are named as when it is deployed."""
    for config in yaml.safe_load_all((source / chosen.webhooks).read_text()):
        config["metadata"]["name"] = f"{chosen.name}-{config['metadata']['name']}"
        for webhook in config["webhooks"]:
            webhook["clientConfig"] = at_address(webhook["clientConfig"], port, ca)
            groups = {group for rule in webhook["rules"] for group in rule["apiGroups"]}
            if chosen.group not in groups:
                webhook.setdefault("namespaceSelector", dict(chosen.selector))
        yield config


def _spawn(plane: ControlPlane, chosen: Addon, argv: list[str], place: Place) -> None:
    with state.locked(plane.folder):
        found = plane.state()
        log = plane.logs / f"{chosen.name}.log"
        identity = process.spawn(argv, log=log, mark=plane.folder, cwd=place.folder)
        found.programs[chosen.name] = ProgramRecord(argv=argv, log=str(log), identity=identity)
        found.health[chosen.name] = f"http://{LOOPBACK}:{place.probes_port}/readyz"
        state.write(plane.folder, found)


def _wait(plane: ControlPlane, chosen: Addon) -> None:
    record = plane.state().programs[chosen.name]
    deadline = time.monotonic() + _READY_SECONDS
    while not plane.is_healthy(chosen.name):
        if record.identity is None or not process.is_alive(record.identity):
            raise LocalClusterError(f"{chosen.name} ended while starting: see its log, {record.log}")
        if time.monotonic() > deadline:
            raise LocalClusterError(f"{chosen.name} did not become ready in time: see its log, {record.log}")
        time.sleep(_POLL_SECONDS)
