"""Webhooks of a program that runs beside the control plane instead of in a pod: its certificates and its manifests.

Published manifests name a Service. Here the API server calls the program at an address of this machine, so
`at_address` replaces the Service by a URL, and adds the certificate authority that `make_certificates` has created.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localcluster import certificates
from localcluster.programs import LOOPBACK

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Certificates:
    """A certificate authority and a server's certificate that it has signed, with their keys, as PEM."""

    ca: bytes
    ca_key: bytes
    server: bytes
    server_key: bytes

    def secret(self, namespace: str, name: str) -> Object:
        """Returns the Secret in which certificate rotators of controllers expect them."""
        data = {"ca.crt": self.ca, "ca.key": self.ca_key, "tls.crt": self.server, "tls.key": self.server_key}
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": namespace},
            "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
        }


def make_certificates(folder: Path, authority: str, names: Sequence[str]) -> Certificates:
    """Creates certificates for a server on loopback that also has these DNS names, as files of a private folder."""
    ca, ca_key, server, server_key = (folder / name for name in ("ca.crt", "ca.key", "tls.crt", "tls.key"))
    certificates.authority(ca, ca_key, authority)
    certificates.signed(server, server_key, (ca, ca_key), names)
    return Certificates(ca.read_bytes(), ca_key.read_bytes(), server.read_bytes(), server_key.read_bytes())


def at_address(client: Mapping[str, Any], port: int, ca: bytes) -> Object:
    """Returns a webhook's `clientConfig` that calls this machine instead of the Service that it names."""
    path = client["service"].get("path", "/")
    return {"url": f"https://{LOOPBACK}:{port}{path}", "caBundle": base64.b64encode(ca).decode()}
