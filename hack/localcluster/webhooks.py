"""Webhooks of a program that runs beside the control plane instead of in a pod: its certificates and its manifests.

Published manifests name a Service. Here the API server calls the program at an address of this machine, so
`at_address` replaces the Service by a URL, and adds the certificate authority that `make_certificates` has created.
"""

from __future__ import annotations

import base64
import datetime
import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from localcluster.programs import LOOPBACK

Object = dict[str, Any]

_VALID = datetime.timedelta(days=3650)
_SKEW = datetime.timedelta(minutes=5)


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


def make_certificates(authority: str, names: Sequence[str]) -> Certificates:
    """Creates certificates for a server on loopback that also has these DNS names.

    The authority's own certificate names `authority` as a DNS name, and its key is in the form PKCS #1, as certificate
    rotators expect.
    """
    ca_key, server_key = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))
    ca_name = _name(authority)
    ca = (
        _builder(ca_name, ca_name, ca_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(authority)]), critical=False)
        .add_extension(_key_usage(signs=True), critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    address = x509.IPAddress(ipaddress.ip_address(LOOPBACK))
    subjects = [address, *(x509.DNSName(name) for name in names)]
    server = (
        _builder(_name(names[0] if names else LOOPBACK), ca_name, server_key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(subjects), critical=False)
        .add_extension(_key_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    return Certificates(
        ca.public_bytes(encoding), _key_pem(ca_key), server.public_bytes(encoding), _key_pem(server_key)
    )


def at_address(client: Mapping[str, Any], port: int, ca: bytes) -> Object:
    """Returns a webhook's `clientConfig` that calls this machine instead of the Service that it names."""
    path = client["service"].get("path", "/")
    return {"url": f"https://{LOOPBACK}:{port}{path}", "caBundle": base64.b64encode(ca).decode()}


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(subject: x509.Name, issuer: x509.Name, key: rsa.RSAPublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + _VALID)
    )


def _key_usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=True,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _key_pem(key: rsa.RSAPrivateKey) -> bytes:
    encoding, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    return key.private_bytes(encoding, serialization.PrivateFormat.TraditionalOpenSSL, plain)
