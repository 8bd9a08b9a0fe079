"""Installs and starts programs of other projects beside a control plane: `make cluster-up WITH=kueue`.

    addons.start(plane, "kueue")                      # builds it if necessary; returns when it is ready
    addons.start(plane, "kueue", {"waitForPodsReady": …})   # with other settings; a running one is restarted

`addontable` has a row for each. Its programs run as the cluster's administrator, with their webhooks on loopback,
where the API server calls them. They are programs of the stack: `cluster-status` shows them,
`cluster-down` ends them.
"""

from __future__ import annotations

import base64
import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from localcluster import binaries, ports, state
from localcluster.addontable import ADDONS, Addon, Place, Settings, addon
from localcluster.api import Api
from localcluster.certificates import self_signed
from localcluster.controlplane import ControlPlane
from localcluster.crds import documents, install_crd
from localcluster.gotoolchain import downloaded, go_of
from localcluster.program import HACK
from localcluster.programs import LOOPBACK
from localcluster.report import Report, to_stderr

__all__ = ["ADDONS", "addon", "is_ready", "start", "stop"]

Object = dict[str, Any]

# Caches are filled, and certificates recorded in CRDs of a megabyte each, before a program is ready.
_READY_SECONDS = 180.0
_PORTS = "ports.json"


def start(plane: ControlPlane, name: str, settings: Settings | None = None, report: Report = to_stderr) -> None:
    """Installs and starts an addon, and waits until it is ready. A running one is restarted with these settings."""
    chosen = addon(name)
    paths = binaries.ensure_all([program.name for program in chosen.programs], report)
    module = HACK / chosen.folder
    source = Path(downloaded(chosen.module, go_of(module, report), module).folder)
    started = time.monotonic()
    stop(plane, name)
    place = _installed(plane, chosen, source) or _installed_now(plane, chosen, source)
    for program in chosen.programs:
        argv = [str(paths[program.name]), *program.command(place, settings or {})]
        plane.add_program(program.name, argv, program.health_address(place), _READY_SECONDS)
    report(f"{chosen.name} {chosen.version} ready in {time.monotonic() - started:.1f} s")


def stop(plane: ControlPlane, name: str) -> None:
    """Ends the addon's processes, if they run. Its objects stay."""
    for program in addon(name).programs:
        if program.name in plane.state().programs:
            plane.kill(program.name, grace_seconds=2.0)


def is_ready(plane: ControlPlane, name: str) -> bool:
    """Reports whether all programs of the addon run on this stack, and are ready."""
    programs = [program.name for program in addon(name).programs]
    return all(program in plane.state().programs and plane.is_healthy(program) for program in programs)


def _installed(plane: ControlPlane, chosen: Addon, source: Path) -> Place | None:
    """Returns where the addon ran before on this stack: its manifests name those ports."""
    with contextlib.suppress(FileNotFoundError):
        found = json.loads((plane.folder / chosen.name / _PORTS).read_bytes())
        return Place(plane.folder / chosen.name, source, found["probes"], found["webhook"], plane.kubeconfig)
    return None


def _installed_now(plane: ControlPlane, chosen: Addon, source: Path) -> Place:
    with ports.reserve(1 + len(chosen.programs), LOOPBACK) as (webhook_port, *others):
        probes_ports = dict(zip((program.name for program in chosen.programs), others, strict=True))
        place = Place(plane.folder / chosen.name, source, probes_ports, webhook_port, plane.kubeconfig)
        state.make_private(place.folder)
        api = Api.from_kubeconfig(plane.kubeconfig)
        try:
            _install(api, chosen, place)
        finally:
            api.close()
        kept = {"probes": probes_ports, "webhook": webhook_port}
        state.write_private(place.folder / _PORTS, json.dumps(kept).encode())
        return place


def _install(api: Api, chosen: Addon, place: Place) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": chosen.namespace}}
    api.apply(f"/api/v1/namespaces/{chosen.namespace}", namespace)
    if chosen.webhooks is not None:
        authority, service = f"{chosen.name}-ca", f"{chosen.webhooks.service}.{chosen.namespace}.svc"
        names = (f"IP:{LOOPBACK}", f"DNS:{authority}", f"DNS:{service}")
        self_signed(place.certificate, place.key, f"/CN={authority}", *names)
        if chosen.webhooks.secret:
            secret = certificate_secret(chosen.namespace, chosen.webhooks.secret, place)
            api.apply(f"/api/v1/namespaces/{chosen.namespace}/secrets/{chosen.webhooks.secret}", secret)
    for crd in crds(chosen, place):
        install_crd(api, crd)
    for config in webhook_configurations(chosen, place):
        plural = config["kind"].lower() + "s"
        api.apply(f"/apis/admissionregistration.k8s.io/v1/{plural}/{config['metadata']['name']}", config)


def certificate_secret(namespace: str, name: str, place: Place) -> Object:
    """Returns the Secret of a certificate rotator. The certificate is its own authority and needs no rotation."""
    files = {"ca.crt": place.certificate, "ca.key": place.key, "tls.crt": place.certificate, "tls.key": place.key}
    data = {key: base64.b64encode(path.read_bytes()).decode() for key, path in files.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace}, "data": data}


def crds(chosen: Addon, place: Place) -> Iterator[Object]:
    """Yields the CRDs of the module, with the addon's conversion webhook on this machine."""
    converted = chosen.webhooks.converted if chosen.webhooks is not None else ()
    paths = sorted(file for folder in chosen.crds for file in (place.source / folder).glob("*.yaml"))
    for crd in (crd for path in paths for crd in documents(path.read_text())):
        if crd["metadata"]["name"] in converted:
            webhook = {"clientConfig": _client(place, "/convert"), "conversionReviewVersions": ["v1"]}
            crd["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
        yield crd


def webhook_configurations(chosen: Addon, place: Place) -> Iterator[Object]:
    """Yields the webhook configurations of the module, which call this machine and are named as when it is deployed.

    They leave the namespaces of Kubernetes and of the addon alone.
    """
    if chosen.webhooks is None:
        return
    for config in documents((place.source / chosen.webhooks.manifest).read_text()):
        if not config["kind"].endswith("WebhookConfiguration"):
            continue
        config["metadata"]["name"] = chosen.webhooks.prefix + config["metadata"]["name"]
        for webhook in config["webhooks"]:
            webhook["clientConfig"] = _client(place, webhook["clientConfig"]["service"].get("path", "/"))
            webhook.setdefault("namespaceSelector", dict(chosen.namespace_selector))
        yield config


def _client(place: Place, path: str) -> Object:
    """Returns the `clientConfig` of a webhook that calls this machine instead of a Service."""
    authority = base64.b64encode(place.certificate.read_bytes()).decode()
    return {"url": f"https://{LOOPBACK}:{place.webhook_port}{path}", "caBundle": authority}
