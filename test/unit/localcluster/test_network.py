"""The rules of localcluster/network.py that need no root."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest

from localcluster import network
from localcluster.errors import LocalClusterError
from localcluster.network import FIRST_NUMBER, LAST_NUMBER, MAX_NODES, Network, Plan


@pytest.mark.parametrize(
    ("routed", "claimed", "number"),
    [
        pytest.param([], [], FIRST_NUMBER, id="the first one, on a machine with no routes"),
        pytest.param([], [200, 201], 202, id="other stacks' numbers are passed over"),
        pytest.param(["10.200.7.0/24"], [], 201, id="a route into the network, however small, counts"),
        pytest.param(["10.200.0.0/14"], [], 204, id="a route around several networks takes them all"),
        pytest.param(["192.168.0.0/16", "172.17.0.0/16"], [], 200, id="other networks do not matter"),
    ],
)
def test_a_stack_takes_the_first_network_that_nobody_has(routed: list[str], claimed: list[int], number: int) -> None:
    assert network.choose([Network(route) for route in routed], claimed) == number


@pytest.mark.parametrize(
    ("routed", "claimed"),
    [
        pytest.param(["10.0.0.0/8"], [], id="the machine's own network covers all"),
        pytest.param([], range(FIRST_NUMBER, LAST_NUMBER + 1), id="as many stacks as there are networks"),
    ],
)
def test_no_free_network_is_said_in_one_line(routed: list[str], claimed: range) -> None:
    with pytest.raises(LocalClusterError, match="no free network"):
        network.choose([Network(route) for route in routed], claimed)


def test_no_address_of_a_stack_is_given_twice() -> None:
    plan = Plan(207)
    ranges = [ip_network(f"{plan.host}/24", strict=False), ip_network(plan.services)]
    ranges += [ip_network(plan.pods(index)) for index in range(1, MAX_NODES + 1)]
    assert all(one.subnet_of(ip_network(plan.whole)) for one in ranges)  # type: ignore[arg-type]  # all are IPv4
    assert not any(one.overlaps(two) for number, one in enumerate(ranges) for two in ranges[:number])
    addresses = {plan.host, *(plan.address(index) for index in range(1, MAX_NODES + 1))}
    assert len(addresses) == MAX_NODES + 1
    assert all(ip_address(address) in ranges[0] for address in addresses)


def test_the_link_has_a_name_that_the_kernel_takes() -> None:
    assert len(Plan(LAST_NUMBER).link) <= 15


@pytest.fixture
def claims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(network, "CLAIMS", tmp_path / "claims")
    monkeypatch.setattr(network, "_routes", list)
    # With numbers that only seem free: the links of those names may be a running stack's.
    monkeypatch.setattr(network, "attempt", lambda *argv: True)
    return tmp_path / "claims"


def test_stacks_get_different_numbers_and_find_their_own(claims: Path, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("a", "b")]
    for folder in folders:
        folder.mkdir()
    plans = [network.claim(folder) for folder in folders]
    assert plans[0] != plans[1]
    assert [network.claim_of(folder) for folder in folders] == plans


def test_a_claim_whose_stack_has_gone_is_given_to_the_next(claims: Path, tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    lost = network.claim(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    (tmp_path / "new").mkdir()
    assert network.claim(tmp_path / "new") == lost


def test_removing_the_last_claim_removes_the_folder_of_claims(claims: Path, tmp_path: Path) -> None:
    plan = network.claim(tmp_path)
    network.remove(plan)
    assert network.claim_of(tmp_path) is None
    assert not claims.exists()
