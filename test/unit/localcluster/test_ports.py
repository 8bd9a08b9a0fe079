"""The rules of localcluster/ports.py."""

from __future__ import annotations

import socket

import pytest

from localcluster import ports
from localcluster.errors import LocalClusterError


def test_stacks_that_start_together_get_different_ports() -> None:
    with ports.reserve(50) as first, ports.reserve(50) as second:
        assert len({*first, *second}) == 100


def test_ports_lie_below_those_of_outgoing_connections() -> None:
    with ports.reserve(50) as reserved:
        assert all(ports.FIRST_PORT <= port < ports.LAST_PORT for port in reserved)


def test_a_port_that_somebody_listens_on_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not ports.is_free(server.getsockname()[1], "127.0.0.1")


def test_ports_are_free_for_others_after_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports.random, "sample", lambda population, count: [20001, 20002])
    with ports.reserve(2) as first:
        with pytest.raises(LocalClusterError, match="no 1 free ports"), ports.reserve(1):
            pass
        assert first == [20001, 20002]
    with ports.reserve(2) as second:
        assert second == first
