"""Kubeflow's training-operator, built from its Go module, to compare the kinds of kubeflow.org/v1 with the original.

    operator = TrainingOperator(plane, namespace="jobs")
    operator.install()    # its CRDs
    operator.start()      # builds it if necessary; returns when its controllers and webhooks are ready
    operator.stop()       # its webhooks first: left behind, they would refuse all jobs
    operator.start()

It runs as the cluster's administrator. Its webhooks listen on this machine, where the API server calls them.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

from localcluster import addons, binaries, ports, probe, state
from localcluster.addontable import Addon, Place, Webhooks
from localcluster.api import Api
from localcluster.certificates import self_signed
from localcluster.controlplane import ControlPlane
from localcluster.errors import LocalClusterError
from localcluster.foreigncrds import Published
from localcluster.gobuild import TRAINING_OPERATOR
from localcluster.process import with_environment
from localcluster.programs import LOOPBACK

PROGRAM = "training-operator"
WEBHOOKS = "validator.training-operator.kubeflow.org"
# The kinds of jobs, by their plurals; training-operator serves webhooks for all but the last.
PLURALS = ("tfjobs", "pytorchjobs", "xgboostjobs", "jaxjobs", "paddlejobs", "mpijobs")

_MODULE = Published(
    TRAINING_OPERATOR,
    "v1.9.4",
    "h1:MjYXzeaHGBmF47BlhCo6+Mb7ypHrVfO6vsys1ZHF56A=",
    tuple(f"manifests/base/crds/kubeflow.org_{plural}.yaml" for plural in PLURALS),
)
_ADDON = Addon(
    name=PROGRAM,
    folder="trainingoperator",
    module=TRAINING_OPERATOR,
    namespace="kubeflow",
    crds=(),
    programs=(),
    webhooks=Webhooks(
        "manifests/base/webhook/manifests.yaml",
        "training-operator",
        secret="training-operator-webhook-cert",  # noqa: S106 - the name of an object
    ),
)
# It waits with exponential pauses for its certificates.
_READY_SECONDS = 180.0
_POLL_SECONDS = 0.05
_CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
# Its certificate rotator looks for a certificate only there, wherever the server of the webhooks reads its own.
_EXPECTED = Path("/tmp/k8s-webhook-server/serving-certs/tls.crt")  # noqa: S108
_SERVED = "k8s-webhook-server/serving-certs"

Object = dict[str, Any]


def training_operator_module() -> Path:
    """Returns the folder of its module, which is downloaded first if necessary. Raises LocalClusterError."""
    return _MODULE.folder()


def install_v1_crds(api: Api) -> None:
    """Applies the CRDs of all kinds. Raises LocalClusterError."""
    _MODULE.install(api)


class TrainingOperator:
    """training-operator beside a control plane, for the jobs of one namespace. Raises LocalClusterError."""

    def __init__(self, plane: ControlPlane, namespace: str, *flags: str) -> None:
        """It gets these flags as well."""
        self._plane = plane
        self._namespace = namespace
        self._flags = flags

    @property
    def pid(self) -> int:
        """The id of the process that was started last. Raises LocalClusterError if there is none."""
        record = self._plane.state().programs.get(PROGRAM)
        if record is None or record.identity is None:
            raise LocalClusterError(f"{PROGRAM} does not run")
        return record.identity.pid

    def install(self) -> None:
        with self._api() as api:
            install_v1_crds(api)

    def start(self) -> None:
        """Starts it on free ports, with its webhooks, and waits until it is ready."""
        program = binaries.ensure(PROGRAM)
        with ports.reserve(3, LOOPBACK) as (probes, metrics, webhooks):
            folder = self._plane.folder / PROGRAM
            place = Place(folder / _SERVED, _MODULE.folder(), {}, webhooks, self._plane.kubeconfig)
            with self._api() as api:
                _install_webhooks(api, place)
            argv = [
                str(program),
                f"--kubeconfig={place.kubeconfig}",
                f"--namespace={self._namespace}",
                f"--health-probe-bind-address={LOOPBACK}:{probes}",
                f"--metrics-bind-address={LOOPBACK}:{metrics}",
                f"--webhook-server-port={webhooks}",
                *self._flags,
            ]
            command = with_environment({"TMPDIR": str(folder)}, argv)
            self._plane.add_program(PROGRAM, command, f"http://{LOOPBACK}:{probes}/readyz", _READY_SECONDS)
            _await_webhooks(place)

    def stop(self) -> None:
        """Deletes the webhooks' configuration, then ends the program. Jobs and pods stay."""
        with self._api() as api:
            api.delete(f"{_CONFIGURATIONS}/{WEBHOOKS}")
        self._plane.kill(PROGRAM, grace_seconds=5.0)

    @contextlib.contextmanager
    def _api(self) -> Any:
        api = Api.from_kubeconfig(self._plane.kubeconfig)
        try:
            yield api
        finally:
            api.close()


def _await_webhooks(place: Place) -> None:
    """Waits until each webhook is served: the program is ready before, and adds them one after another."""
    deadline = time.monotonic() + _READY_SECONDS
    configs = addons.webhook_configurations(_ADDON, place)
    urls = [webhook["clientConfig"]["url"] for config in configs for webhook in config["webhooks"]]
    while missing := [url for url in urls if not probe.is_healthy(url, certificate=place.certificate)]:
        if time.monotonic() > deadline:
            raise LocalClusterError(f"{PROGRAM} does not serve {', '.join(missing)}")
        time.sleep(_POLL_SECONDS)


def _install_webhooks(api: Api, place: Place) -> None:
    """Applies the configuration as upstream's overlay does, and the Secret with the certificate, which is valid."""
    namespace, names = _ADDON.namespace, _ADDON.webhooks
    assert names is not None  # noqa: S101 - see _ADDON
    api.apply(
        f"/api/v1/namespaces/{namespace}", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    )
    state.make_private(place.folder)
    if not place.certificate.exists():
        subject = ("training-operator-ca", f"{names.service}.{namespace}.svc")
        self_signed(
            place.certificate, place.key, f"/CN={subject[0]}", f"IP:{LOOPBACK}", *(f"DNS:{name}" for name in subject)
        )
    _EXPECTED.parent.mkdir(parents=True, exist_ok=True)
    _EXPECTED.touch()
    secret = addons.certificate_secret(namespace, names.secret, place)
    api.apply(f"/api/v1/namespaces/{namespace}/secrets/{names.secret}", secret)
    for config in addons.webhook_configurations(_ADDON, place):
        config["metadata"]["name"] = WEBHOOKS
        api.apply(f"{_CONFIGURATIONS}/{WEBHOOKS}", config)
