"""How many refused logins reach the API server."""

from __future__ import annotations

import pytest

from helpers.fakeclock import FakeClock
from tfjob_controller.dashboard.loginrate import OF_ADDRESS, OF_NEW, OF_REFUSED, LoginRate
from tfjob_controller.dashboard.turns import BusyError


def is_refused_by_rate(rate: LoginRate, address: str, *, is_right: bool = False) -> bool:
    """Tries a login with a wrong token."""
    try:
        with rate.trying(address):
            if not is_right:
                raise PermissionError
    except PermissionError:
        return False
    except BusyError:
        return True
    return False


def test_an_address_may_be_wrong_so_often_in_a_minute() -> None:
    clock = FakeClock()
    rate = LoginRate(clock)
    assert [is_refused_by_rate(rate, "a") for _ in range(OF_ADDRESS + 1)] == [False] * OF_ADDRESS + [True]
    assert not is_refused_by_rate(rate, "b")
    clock.advance(61)
    assert not is_refused_by_rate(rate, "a")


def test_those_who_guess_from_many_addresses_keep_nobody_from_a_first_login() -> None:
    clock = FakeClock()
    rate = LoginRate(clock)
    guessers = [f"guesser-{index}" for index in range(40)]
    for address in guessers:
        assert not is_refused_by_rate(rate, address)
    clock.advance(10)
    assert [is_refused_by_rate(rate, address) for address in guessers].count(False) == OF_REFUSED
    assert not is_refused_by_rate(rate, "new", is_right=True)


def test_new_addresses_have_a_rate_as_well() -> None:
    clock = FakeClock()
    rate = LoginRate(clock)
    assert [is_refused_by_rate(rate, f"new-{index}") for index in range(OF_NEW + 5)].count(False) == OF_NEW
    clock.advance(10)
    assert not is_refused_by_rate(rate, "the next")


@pytest.mark.parametrize("address", ["a", ""])
def test_logins_that_are_accepted_do_not_count(address: str) -> None:
    rate = LoginRate(FakeClock())
    assert not any(is_refused_by_rate(rate, address, is_right=True) for _ in range(200))


def test_behind_a_proxy_refused_logins_count_in_all_only() -> None:
    rate = LoginRate(FakeClock())
    assert [is_refused_by_rate(rate, "") for _ in range(OF_REFUSED + 5)].count(False) == OF_REFUSED
