"""Reports of progress as programs send them, with tokens that the API server made for pods."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import Any

from helpers.poll import PATIENCE_SECONDS
from helpers.trainjobs import env_of
from localcluster.api import Api

Object = dict[str, Any]

CA_VARIABLE, URL_VARIABLE = "KUBEFLOW_TRAINER_SERVER_CA_CERT", "KUBEFLOW_TRAINER_SERVER_URL"
VOLUME = "kubeflow-trainer-token"


@dataclass(frozen=True, slots=True)
class Response:
    """A response of the server."""

    code: int
    body: Object = field(default_factory=dict)

    @property
    def message(self) -> str:
        return str(self.body.get("message", ""))


def sources_of(pod: Object) -> tuple[Object, Object]:
    """The token and the ConfigMap that the pod's volume has."""
    (volume,) = [each for each in pod["spec"]["volumes"] if each["name"] == VOLUME]
    token, config_map = volume["projected"]["sources"]
    return token["serviceAccountToken"], config_map["configMap"]


def token_of(api: Api, pod: Object, audience: str = "") -> str:
    """A token as the kubelet gets it for the pod; by default with the audience that the pod's volume asks for."""
    meta = pod["metadata"]
    wanted = audience or sources_of(pod)[0]["audience"]
    bound = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": [wanted], "expirationSeconds": 3600, "boundObjectRef": bound},
    }
    path = f"/api/v1/namespaces/{meta['namespace']}/serviceaccounts/default/token"
    return str(api.create(path, request)["status"]["token"])


def ca_of(api: Api, pod: Object) -> str:
    """The CA that the pod mounts."""
    source = sources_of(pod)[1]
    (item,) = source["items"]
    found = api.get(f"/api/v1/namespaces/{pod['metadata']['namespace']}/configmaps/{source['name']}")
    return str(found["data"][item["key"]])


@dataclass(frozen=True, slots=True)
class Reporter:
    """A program that reports: it knows what its pod has."""

    url: str
    ca: str
    token: str

    @classmethod
    def of(cls, api: Api, pod: Object, container: str = "node") -> Reporter:
        return cls(env_of(pod, container)[URL_VARIABLE], ca_of(api, pod), token_of(api, pod))

    def report(self, **status: Any) -> Response:
        return self.send(json.dumps({"trainerStatus": status}).encode())

    def send(self, body: bytes, method: str = "POST") -> Response:
        headers = {"Content-Type": "application/json"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        request = urllib.request.Request(self.url, data=body, headers=headers, method=method)
        context = ssl.create_default_context(cadata=self.ca)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS, context=context) as response:
                return Response(response.status, json.loads(response.read()))
        except urllib.error.HTTPError as error:
            return Response(error.code, json.loads(error.read()))
