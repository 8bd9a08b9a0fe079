"""The certificate of the progress server: made, shared between replicas, renewed in time, and never shown."""

from __future__ import annotations

import socket
import ssl
import threading
from base64 import b64decode
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from helpers.fakeclock import FakeClock
from helpers.memoryapi import Fault, MemoryApi, Request
from tfjob_controller.controller.progressserver.certificates import (
    CERTIFICATE_TIME,
    RENEWAL,
    KeyPairs,
    ServingCertificate,
    renewed_pairs,
)

HOST = "progress.system.svc"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture(scope="module")
def pairs() -> KeyPairs:
    return renewed_pairs(None, HOST, NOW)


def serving(api: MemoryApi, clock: FakeClock, host: str = HOST) -> ServingCertificate:
    return ServingCertificate(api, "system", host, clock)


def test_what_is_good_for_long_enough_stays(pairs: KeyPairs) -> None:
    latest = NOW + CERTIFICATE_TIME - RENEWAL - DAY
    assert renewed_pairs(pairs, HOST, latest) is pairs


def test_a_certificate_is_renewed_before_its_end_by_the_same_ca(pairs: KeyPairs) -> None:
    renewed = renewed_pairs(pairs, HOST, NOW + CERTIFICATE_TIME - RENEWAL + DAY)
    assert (renewed.ca, renewed.ca_key) == (pairs.ca, pairs.ca_key)
    assert renewed.certificate != pairs.certificate


def test_another_host_name_gets_another_certificate(pairs: KeyPairs) -> None:
    renewed = renewed_pairs(pairs, "10.0.0.1", NOW)
    assert renewed.ca == pairs.ca
    assert renewed.certificate != pairs.certificate
    assert renewed_pairs(renewed, "10.0.0.1", NOW) is renewed


def test_a_ca_that_nears_its_end_is_replaced(pairs: KeyPairs) -> None:
    assert renewed_pairs(pairs, HOST, NOW + timedelta(days=3400)).ca != pairs.ca


@pytest.mark.parametrize("part", ["ca", "ca_key", "certificate", "key"])
def test_what_somebody_has_spoilt_is_replaced(pairs: KeyPairs, part: str) -> None:
    other = renewed_pairs(None, HOST, NOW)
    for value in (b"", b"-----BEGIN nothing", getattr(other, part)):
        renewed = renewed_pairs(replace(pairs, **{part: value}), HOST, NOW)
        assert renewed_pairs(renewed, HOST, NOW) is renewed
        assert renewed.certificate != pairs.certificate


def test_replicas_serve_with_the_same_certificate() -> None:
    api, clock = MemoryApi(), FakeClock(NOW)
    one, other = serving(api, clock), serving(api, clock)
    one.ensure()
    other.ensure()
    assert one.ca == other.ca
    assert [each.method for each in api.written("POST", "PATCH")] == ["POST"]
    clock.advance((CERTIFICATE_TIME - RENEWAL + DAY).total_seconds())
    other.ensure()
    one.ensure()
    assert [each.method for each in api.written("POST", "PATCH")] == ["POST", "PATCH"]


def test_a_replica_that_was_slower_takes_what_the_other_has_written() -> None:
    api, clock = MemoryApi(), FakeClock(NOW)
    one, other = serving(api, clock), serving(api, clock)

    def overtake(_: Request) -> None:
        other.ensure()

    # The read finds nothing, and the create comes after that of the other one.
    api.script.extend([Fault(), Fault(before=overtake)])
    one.ensure()
    assert one.ca == other.ca


def test_a_deleted_secret_is_written_again() -> None:
    api, clock = MemoryApi(), FakeClock(NOW)
    certificate = serving(api, clock)
    certificate.ensure()
    before = certificate.ca
    api.objects.clear()
    certificate.ensure()
    assert certificate.ca != before
    (secret,) = api.list("secrets")
    assert b64decode(secret["data"]["ca.crt"]).decode() == certificate.ca


def test_a_client_that_has_the_ca_trusts_the_server_by_its_name() -> None:
    certificate = serving(MemoryApi(), FakeClock(datetime.now(UTC)))
    certificate.ensure()
    client = ssl.create_default_context(cadata=certificate.ca)
    ours, theirs = socket.socketpair()

    def serve() -> None:
        with certificate.context().wrap_socket(ours, server_side=True) as stream:
            stream.sendall(b"hello")

    thread = threading.Thread(target=serve)
    thread.start()
    with client.wrap_socket(theirs, server_hostname=HOST) as stream:
        assert stream.recv(5) == b"hello"
    thread.join()


def test_keys_are_in_no_text_of_the_value(pairs: KeyPairs) -> None:
    assert "PRIVATE" not in f"{pairs!r}{pairs}"
