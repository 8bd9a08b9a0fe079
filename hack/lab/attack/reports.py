"""Jobs that run as long as the attack and report their progress all the time, and forged reports.

Each is a gang. That of the other tenant must neither be evicted nor have a report refused. The hostile one reports as
fast as it can, and from four addresses come tokens that nobody knows. One thread for each job and address.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from typing import Any

import urllib3

from lab.attack.connections import PODS as ADDRESSES
from lab.attack.dashboard import browser
from lab.attack.helpers import Attackers
from lab.attack.stage import LONG
from lab.background import Background
from lab.command import wait
from lab.jobs import TRAINJOB, JobPlan, Part, manifest, path_of
from lab.mirror import PODS
from localcluster.api import Api

_TOKEN = "/api/v1/namespaces/{}/serviceaccounts/default/token"  # noqa: S105 -- a path
_FORGED_SECONDS = 0.1
_BODY = json.dumps({"trainerStatus": {"metrics": [{"name": "loss", "value": "0.5"}]}}).encode()

Object = dict[str, Any]


class LongJob(Background):
    """One job with its reports. `seconds` are the times that reports took which were accepted."""

    def __init__(self, api: Api, namespace: str, address: str, pause_seconds: float) -> None:
        """`address` is that of its pod."""
        super().__init__(self._report)
        self.seconds: list[float] = []
        self.statuses: Counter[str] = Counter()
        self._api, self._namespace = api, namespace
        self._name = f"the job {namespace}/{LONG}"
        self._address, self._pause_seconds = address, pause_seconds
        self._pod: Object = {}
        self._token = ""
        self.url = ""

    def start(self) -> None:
        """Returns once its pod runs. Raises LocalClusterError."""
        plan = JobPlan(TRAINJOB, [Part("node", 1, None)], LONG, is_gang=True, cpu="1", framework="torch")
        self._api.create(path_of(plan, self._namespace), manifest(plan))
        wait(lambda: [pod["status"]["phase"] for pod in self._pods()] == ["Running"], f"{self._name} does not run")
        (self._pod,) = self._pods()
        env = {variable["name"]: variable.get("value", "") for variable in self._pod["spec"]["containers"][0]["env"]}
        self.url, self._token = env["KUBEFLOW_TRAINER_SERVER_URL"], self._new_token()
        super().start()

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
        return [f"{self._name} {text}" for text, is_broken in bounds.items() if is_broken]

    def _pods(self) -> list[Object]:
        return self._api.list(PODS.format(self._namespace), f"train_job_name={LONG}")

    def _new_token(self) -> str:
        """Returns a token of the pod, as its kubelet gets it."""
        sources = [
            source for volume in self._pod["spec"]["volumes"] for source in volume.get("projected", {})["sources"]
        ]
        tokens = [source["serviceAccountToken"] for source in sources if "serviceAccountToken" in source]
        audiences = [token["audience"] for token in tokens if token.get("audience")]
        meta = self._pod["metadata"]
        bound = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
        spec = {"audiences": audiences, "expirationSeconds": 7200, "boundObjectRef": bound}
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        return str(self._api.create(_TOKEN.format(self._namespace), request)["status"]["token"])

    def _report(self) -> None:
        for _ in self.ticks(self._pause_seconds):
            begin = time.monotonic()
            try:
                status = _send(self.url, self._token, self._address)
            except urllib3.exceptions.HTTPError as error:
                self.statuses[type(error).__name__] += 1
                continue
            self.statuses[str(status)] += 1
            if status == 200:
                self.seconds.append(time.monotonic() - begin)


class _Forgers(Attackers):
    def reports(self, url: str, address: str, pause_seconds: float) -> Iterator[float]:
        while True:
            with contextlib.suppress(urllib3.exceptions.HTTPError):
                self.counts[f"forged_report_{_send(url, secrets.token_urlsafe(300), address)}"] += 1
            yield pause_seconds


def forge(url: str, size: float, over: Event, results: Connection) -> None:
    """Reports with unknown tokens until `over`. Runs in a separate process. `size` is the share of the attackers."""
    forgers = _Forgers(over)
    forgers.run([forgers.reports(url, address, _FORGED_SECONDS / size) for address in ADDRESSES], results)


def _send(url: str, token: str, address: str) -> int:
    """Returns the status of a report. Programs open a connection for each. Raises urllib3's HTTPError."""
    with browser(address) as client:
        return client.request("POST", url, headers={"Authorization": f"Bearer {token}"}, body=_BODY).status
