"""Jobs that run as long as the attack and report their progress all the time, and forged reports.

Each is a gang. That of the other tenant must neither be evicted nor have a report refused. The hostile one reports as
fast as it can, and from four addresses come tokens that nobody knows. One thread for each job and address.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from typing import Any

import urllib3

from attack.connections import PODS as ADDRESSES
from attack.dashboard import browser
from attack.stage import LONG
from chaos.jobs.manifests import TRAINJOBS
from localcluster.api import Api
from localcluster.errors import LocalClusterError

_PODS = "/api/v1/namespaces/{}/pods?labelSelector=train_job_name%3D" + LONG
_TOKEN = "/api/v1/namespaces/{}/serviceaccounts/default/token"  # noqa: S105 -- a path
_TIMEOUT_SECONDS, _START_SECONDS, _POLL_SECONDS = 30.0, 60.0, 0.2
_FORGED_SECONDS = 0.1
_BODY = json.dumps({"trainerStatus": {"metrics": [{"name": "loss", "value": "0.5"}]}}).encode()

Object = dict[str, Any]


class LongJob:
    """One job with its reports. `seconds` are the times that reports took which were accepted."""

    def __init__(self, api: Api, namespace: str, address: str, pause_seconds: float) -> None:
        """`address` is that of its pod."""
        self.seconds: list[float] = []
        self.statuses: Counter[str] = Counter()
        self._api, self._namespace = api, namespace
        self._address, self._pause_seconds = address, pause_seconds
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._report, daemon=True)
        self._pod: Object = {}
        self._token = ""
        self.url = ""

    def start(self) -> None:
        """Returns once its pod runs. Raises LocalClusterError."""
        trainer = {"image": "localhost/none", "command": ["train"], "resourcesPerNode": {"requests": {"cpu": "1"}}}
        spec = {"framework": "torch", "numNodes": 1, "trainer": trainer, "gang": {"enabled": True}}
        body = {"apiVersion": "kubeflow.org/v2alpha1", "kind": "TrainJob", "metadata": {"name": LONG}, "spec": spec}
        self._api.create(TRAINJOBS.format(self._namespace), body)
        self._pod = self._await(lambda: next((pod for pod in self._pods() if pod["status"]["phase"] == "Running"), {}))
        env = {each["name"]: each.get("value", "") for each in self._pod["spec"]["containers"][0]["env"]}
        self.url, self._token = env["KUBEFLOW_TRAINER_SERVER_URL"], self._new_token()
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(_TIMEOUT_SECONDS)

    def figures(self) -> dict[str, Any]:
        return {"report_max_seconds": round(max(self.seconds, default=0.0), 2), **self.statuses}

    def broken(self, report_seconds: float) -> list[str]:
        """Returns the limits that are violated, of a job that nobody may disturb."""
        slowest = max(self.seconds, default=report_seconds + 1)
        bounds = {
            "lost its pod": [pod["metadata"]["uid"] for pod in self._pods()] != [self._pod["metadata"]["uid"]],
            "had a report that was not accepted": set(self.statuses) != {"200"},
            f"took longer than {report_seconds:g} s for a report": slowest > report_seconds,
        }
        return [f"the job {self._namespace}/{LONG} {words}" for words, is_broken in bounds.items() if is_broken]

    def _pods(self) -> list[Object]:
        return list(self._api.get(_PODS.format(self._namespace))["items"])

    def _await(self, found: Callable[[], Object]) -> Object:
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            if result := found():
                return result
            time.sleep(_POLL_SECONDS)
        raise LocalClusterError(f"the job {self._namespace}/{LONG} does not run")

    def _new_token(self) -> str:
        """Returns a token of the pod, as its kubelet gets it."""
        sources = [each for volume in self._pod["spec"]["volumes"] for each in volume.get("projected", {})["sources"]]
        audiences = [
            each["serviceAccountToken"].get("audience", "") for each in sources if "serviceAccountToken" in each
        ]
        meta = self._pod["metadata"]
        bound = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
        spec = {"audiences": [each for each in audiences if each], "expirationSeconds": 7200, "boundObjectRef": bound}
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        return str(self._api.create(_TOKEN.format(self._namespace), request)["status"]["token"])

    def _report(self) -> None:
        while not self._stopping.wait(self._pause_seconds):
            begin = time.monotonic()
            try:
                status = _send(self.url, self._token, self._address)
            except urllib3.exceptions.HTTPError as error:
                self.statuses[type(error).__name__] += 1
                continue
            self.statuses[str(status)] += 1
            if status == 200:
                self.seconds.append(time.monotonic() - begin)


def forge(url: str, size: float, over: Event, results: Connection) -> None:
    """Reports with unknown tokens until `over`; then sends the number of each response. Runs in a separate process.

    `size` is the share of the attackers.
    """
    statuses: Counter[str] = Counter()

    def run(address: str) -> None:
        while not over.wait(_FORGED_SECONDS / size):
            with contextlib.suppress(urllib3.exceptions.HTTPError):
                statuses[f"forged_report_{_send(url, secrets.token_urlsafe(300), address)}"] += 1

    with contextlib.suppress(KeyboardInterrupt):
        threads = [threading.Thread(target=run, args=(address,), daemon=True) for address in ADDRESSES]
        for thread in threads:
            thread.start()
        over.wait()
        # `over.set` waits for all that wait for it, and would wait for ever for a thread that ends with this process.
        for thread in threads:
            thread.join(_TIMEOUT_SECONDS)
    results.send(dict(statuses))


def _send(url: str, token: str, address: str) -> int:
    """Returns the status of a report. Programs open a connection for each. Raises urllib3's HTTPError."""
    with browser(address) as client:
        return client.request("POST", url, headers={"Authorization": f"Bearer {token}"}, body=_BODY).status
