"""Adds to training pods the variables and files for progress reports: an address, a CA and a token.

Source: kubeflow/trainer pkg/runtime/framework/plugins/trainjobstatus/trainjobstatus.go, for all names here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from tfjob_controller.api.common.trainerstatus import report_audience, report_path
from tfjob_controller.jobs.podtemplate.merge import Part, with_env, with_mounts, with_spec, with_volumes

_URL, _CA, _TOKEN = "KUBEFLOW_TRAINER_SERVER_URL", "KUBEFLOW_TRAINER_SERVER_CA_CERT", "KUBEFLOW_TRAINER_SERVER_TOKEN"
VARIABLES = (_URL, _CA, _TOKEN)
_VOLUME, _PATH = "kubeflow-trainer-token", "/var/run/secrets/kubeflow/trainer"
_CA_FILE, _TOKEN_FILE = "ca.crt", "token"
_TOKEN_SECONDS = 3600
# The file in the ConfigMap of the job.
CA_KEY = "ca.crt"
_DIGEST = 8


@dataclass(frozen=True, slots=True)
class ProgressServer:
    """The server to which programs report: its URL without a path, and the CA of its certificate as PEM."""

    url: str
    ca: str


def with_progress_report(
    template: Part, server: ProgressServer, namespace: str, job: str, config_map: str
) -> dict[str, Any]:
    """Adds the variables and the volume to all containers. The ConfigMap has the CA under `CA_KEY`."""
    env = [
        {"name": _URL, "value": server.url + report_path(namespace, job)},
        {"name": _CA, "value": f"{_PATH}/{_CA_FILE}"},
        {"name": _TOKEN, "value": f"{_PATH}/{_TOKEN_FILE}"},
    ]
    mount = {"name": _VOLUME, "mountPath": _PATH, "readOnly": True}
    containers = [with_mounts(with_env(container, env), [mount]) for container in template["spec"]["containers"]]
    return with_volumes(with_spec(template, containers=containers), [_volume(namespace, job, config_map)])


def _volume(namespace: str, job: str, config_map: str) -> dict[str, Any]:
    token = {
        "audience": report_audience(namespace, job),
        "expirationSeconds": _TOKEN_SECONDS,
        "path": _TOKEN_FILE,
    }
    ca = {"name": config_map, "items": [{"key": CA_KEY, "path": _CA_FILE}]}
    return {"name": _VOLUME, "projected": {"sources": [{"serviceAccountToken": token}, {"configMap": ca}]}}


def mounted_files(files: Mapping[str, str], server: ProgressServer | None) -> Mapping[str, str]:
    """The files of a job's ConfigMap: those that its framework needs, and the CA of the server."""
    return files if server is None else {**files, CA_KEY: server.ca}


def files_digest(files: Mapping[str, str]) -> str:
    """A part of the ConfigMap's name that differs for other files, since running pods keep the ones they have."""
    return hashlib.sha256(msgspec.json.encode(files, order="deterministic")).hexdigest()[:_DIGEST]
