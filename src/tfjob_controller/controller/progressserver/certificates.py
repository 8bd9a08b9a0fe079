"""The certificate of the progress server, which the controller makes and renews itself.

Theory of operation. A Secret in the controller's namespace has a CA and a certificate that it signed. All replicas of
the controller serve with it, so whichever finds the Secret missing, unusable or old writes a new one, and a conflict
means that another replica was faster. The certificate is renewed long before its end, signed by the same CA, which pods
have a copy of. A new CA, when the old one nears its end, is known only to pods that start afterwards.

Threads: `ensure` belongs to one thread at a time; properties may be read by any.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
import tempfile
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import structlog

from tfjob_controller.api.common.core import SECRETS
from tfjob_controller.kube.client import ResourceClient
from tfjob_controller.kube.codec import decoder_for
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.meta import ObjectMeta
from tfjob_controller.kube.requester import Requester
from tfjob_controller.util.clock import Clock

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

log = structlog.get_logger(__name__)

SECRET_NAME = "tfjob-controller-progress-server"  # noqa: S105 -- the name of an object
_CA, _CA_KEY, _CERTIFICATE, _KEY = "ca.crt", "ca.key", "tls.crt", "tls.key"

_CA_TIME, _CA_RENEWAL = timedelta(days=3650), timedelta(days=365)
CERTIFICATE_TIME, RENEWAL = timedelta(days=90), timedelta(days=30)
# Clocks of nodes differ.
_BEFORE = timedelta(hours=1)


class KeySecret(msgspec.Struct, frozen=True, rename="camel"):
    """The Secret. Values are in base64, as on the wire."""

    metadata: ObjectMeta
    data: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class KeyPairs:
    """Certificates and keys as PEM: of the CA and of the server."""

    ca: bytes
    ca_key: bytes
    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return "KeyPairs()"


class ServingCertificate:
    """The certificate for one host name."""

    def __init__(self, requester: Requester, namespace: str, host: str, clock: Clock) -> None:
        """`namespace` is that of the Secret; `host` is the name or address by which pods reach the server."""
        self._client = ResourceClient(requester, SECRETS.with_decoder(decoder_for(KeySecret)))
        self._namespace = namespace
        self._host = host
        self._clock = clock
        self._served: tuple[KeyPairs, ssl.SSLContext] | None = None

    @property
    def ca(self) -> str:
        """The CA as PEM. Only after a call of `ensure`."""
        return self._current()[0].ca.decode()

    def context(self) -> ssl.SSLContext:
        """The TLS settings of a new connection. Only after a call of `ensure`."""
        return self._current()[1]

    def _current(self) -> tuple[KeyPairs, ssl.SSLContext]:
        if self._served is None:
            raise RuntimeError("the certificate is not known yet")
        return self._served

    def ensure(self) -> None:
        """Reads the Secret, renews what it has if necessary, and serves with that from now on. Raises ApiError."""
        now = self._clock.now()
        secret = self._read()
        pairs = _pairs_of(secret) if secret is not None else None
        renewed = renewed_pairs(pairs, self._host, now)
        if renewed is not pairs:
            if not self._write(secret, renewed):
                return self.ensure()
            log.info("certificate of the progress server renewed", secret=f"{self._namespace}/{SECRET_NAME}")
        if self._served is None or self._served[0] != renewed:
            self._served = renewed, _context_of(renewed)
        return None

    def _read(self) -> KeySecret | None:
        try:
            return self._client.get(self._namespace, SECRET_NAME)
        except ApiError as error:
            if error.is_not_found:
                return None
            raise

    def _write(self, before: KeySecret | None, pairs: KeyPairs) -> bool:
        """Returns False if another replica has written the Secret meanwhile."""
        names = {_CA: pairs.ca, _CA_KEY: pairs.ca_key, _CERTIFICATE: pairs.certificate, _KEY: pairs.key}
        data = {name: b64encode(value).decode() for name, value in names.items()}
        try:
            if before is None:
                body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET_NAME}, "data": data}
                self._client.create(self._namespace, body)
            else:
                meta = {"uid": before.metadata.uid, "resourceVersion": before.metadata.resource_version}
                self._client.patch(self._namespace, SECRET_NAME, {"metadata": meta, "data": data})
        except ApiError as error:
            if error.is_already_exists or error.is_conflict:
                return False
            raise
        return True


def _pairs_of(secret: KeySecret) -> KeyPairs | None:
    """What the Secret has; None if it lacks a part."""
    try:
        return KeyPairs(*(_decoded(secret.data, name) for name in (_CA, _CA_KEY, _CERTIFICATE, _KEY)))
    except (KeyError, Base64Error):
        return None


def _decoded(data: Mapping[str, str], name: str) -> bytes:
    return b64decode(data[name], validate=True)


def renewed_pairs(pairs: KeyPairs | None, host: str, now: datetime) -> KeyPairs:
    """The same value if it can be used for long enough, otherwise one with a new certificate, or also a new CA."""
    ca = _loaded(pairs.ca, pairs.ca_key) if pairs is not None else None
    if ca is None or ca[0].not_valid_after_utc < now + _CA_RENEWAL:
        return _signed(*_new_ca(now), host, now)
    served = _loaded(pairs.certificate, pairs.key) if pairs is not None else None
    if pairs is not None and served is not None and _is_usable(served[0], ca[0], host, now):
        return pairs
    return _signed(*ca, host, now)


def _loaded(certificate: bytes, key: bytes) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None:
    """A certificate with its own key; None if the texts are not that."""
    # Imported here, since it takes some MB of memory and time that controllers without this server should not spend.
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    try:
        parsed = x509.load_pem_x509_certificate(certificate)
        private = serialization.load_pem_private_key(key, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
    if not isinstance(private, ec.EllipticCurvePrivateKey) or parsed.public_key() != private.public_key():
        return None
    return parsed, private


def _is_usable(certificate: x509.Certificate, ca: x509.Certificate, host: str, now: datetime) -> bool:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature

    try:
        certificate.verify_directly_issued_by(ca)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (InvalidSignature, ValueError, TypeError, x509.ExtensionNotFound):
        return False
    return certificate.not_valid_after_utc >= now + RENEWAL and _name_of(host) in names


def _name_of(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _new_ca(now: datetime) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject(f"{SECRET_NAME}-ca")
    unused = dict.fromkeys(("content_commitment", "key_encipherment", "data_encipherment", "key_agreement"), False)
    usage = x509.KeyUsage(
        **unused, digital_signature=True, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False
    )
    certificate = (
        _builder(subject, subject, key, now, _CA_TIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return certificate, key


def _signed(ca: x509.Certificate, ca_key: ec.EllipticCurvePrivateKey, host: str, now: datetime) -> KeyPairs:
    """The CA with a new certificate for the host."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _builder(_subject(SECRET_NAME), ca.subject, key, now, CERTIFICATE_TIME)
        .add_extension(x509.SubjectAlternativeName([_name_of(host)]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    return KeyPairs(_pem(ca), _key_pem(ca_key), _pem(certificate), _key_pem(key))


def _subject(name: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, duration: timedelta
) -> x509.CertificateBuilder:
    from cryptography import x509

    begin = now.astimezone(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin - _BEFORE)
        .not_valid_after(begin + duration)
    )


def _pem(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _context_of(pairs: KeyPairs) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    _load(context, pairs.certificate + pairs.key)
    return context


def _load(context: ssl.SSLContext, chain: bytes) -> None:
    """Loads a certificate and its key. OpenSSL takes a file only, and the container's file system is read-only."""
    if not hasattr(os, "memfd_create"):
        with tempfile.NamedTemporaryFile() as file:
            file.write(chain)
            file.flush()
            context.load_cert_chain(file.name)
        return
    descriptor = os.memfd_create(SECRET_NAME)
    try:
        path = Path(f"/proc/self/fd/{descriptor}")
        path.write_bytes(chain)
        context.load_cert_chain(path)
    finally:
        os.close(descriptor)
