"""The lines of the controller's logs that are about one job. Needs the right to read logs of its pods."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from tfjob_controller.api.core import PODS, Pod
from tfjob_controller.kube.client import ResourceClient
from tfjob_controller.kube.codec import decoder_for
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.requester import Requester
from tfjob_controller.kubectl.casefile import CaseFile
from tfjob_controller.kubectl.timeline import Entry, of_log

SYSTEM = "tfjob-system"
SELECTOR = "app=tfjob-controller"
# Of each replica; a controller of some hundred jobs writes that in some hours.
MAX_BYTES = 10_000_000
_TIMEOUT_SECONDS = 30.0


def read_controller_logs(requester: Requester, case: CaseFile, namespace: str = SYSTEM) -> list[Entry]:
    """Since the job was made, as far back as the kubelets keep them. What cannot be read is noted in the case."""
    client = ResourceClient(requester, PODS, decoder_for(Pod), timeout_seconds=_TIMEOUT_SECONDS, retry=False)
    try:
        pods = client.list(namespace, SELECTOR)
    except ApiError as error:
        case.unread.append(f"the controller's logs: {error.message}")
        return []
    if not pods:
        case.unread.append(f"the controller's logs: no pod with {SELECTOR} runs in namespace {namespace}")
    return [entry for pod in pods for entry in _of_pod(requester, case, pod)]


def _of_pod(requester: Requester, case: CaseFile, pod: Pod) -> list[Entry]:
    name = pod.metadata.name
    path = PODS.path(pod.metadata.namespace, name, "log")
    query = {"limitBytes": str(MAX_BYTES), "sinceTime": case.seen.metadata.creation_timestamp or ""}
    try:
        body = requester.request("GET", path, query=query, accept="*/*", timeout_seconds=_TIMEOUT_SECONDS, retry=False)
    except ApiError as error:
        case.unread.append(f"the log of pod {name}: {error.message}")
        return []
    return [of_log(line, name) for line in lines_about(case.key, body)]


def lines_about(key: str, log: bytes) -> Iterator[dict[str, Any]]:
    """Those with that key; a log for people (--log-format=console) has none."""
    needle = key.encode()
    for raw in log.splitlines():
        if needle not in raw:
            continue
        try:
            line = msgspec.json.decode(raw)
        except msgspec.DecodeError:
            continue
        if isinstance(line, dict) and line.get("key") == key:
            yield line
