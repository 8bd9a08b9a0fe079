"""Whose call gets a thread next."""

from __future__ import annotations

import threading
from concurrent.futures import wait
from functools import partial

import pytest

from tfjob_controller.dashboard.turns import BusyError, PersonTurns


def test_people_get_threads_in_turn_whatever_the_number_of_their_calls() -> None:
    turns, go, order = PersonTurns("test", threads=1, each=1, waiting=8), threading.Event(), list[str]()
    calls = [turns.submit("first", lambda: go.wait(60))]
    names = ("a1", "a2", "a3", "b1", "b2", "c1")
    named = [turns.submit(name[0], partial(order.append, name)) for name in names]
    go.set()
    wait([*calls, *named], 60)
    assert order == ["a1", "b1", "c1", "a2", "b2", "a3"]


def test_a_person_has_so_many_threads_and_so_many_calls_that_wait() -> None:
    turns, go, running = PersonTurns("test", threads=4, each=2, waiting=3), threading.Event(), list[int]()

    def call(index: int) -> None:
        running.append(index)
        go.wait(60)

    calls = [turns.submit("a", partial(call, index)) for index in range(5)]
    with pytest.raises(BusyError):
        turns.submit("a", lambda: None)
    assert turns.submit("b", lambda: 7).result(60) == 7
    assert set(running) <= {0, 1}
    go.set()
    wait(calls, 60)
    assert sorted(running) == [0, 1, 2, 3, 4]


def test_a_call_that_nobody_waits_for_takes_no_place() -> None:
    turns, go = PersonTurns("test", threads=1, each=1, waiting=1), threading.Event()
    turns.submit("a", lambda: go.wait(60))
    waiting = turns.submit("a", lambda: None)
    assert waiting.cancel()
    kept = turns.submit("a", lambda: 3)
    go.set()
    assert kept.result(60) == 3


def test_an_error_is_the_callers_and_frees_the_thread() -> None:
    turns = PersonTurns("test", threads=1, each=1, waiting=2)

    def fail() -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        turns.submit("a", fail).result(60)
    assert turns.submit("a", lambda: 1).result(60) == 1


def test_the_accounts_of_a_namespace_have_the_threads_of_one_person() -> None:
    turns, go, running = PersonTurns("test", threads=4, each=2, waiting=1), threading.Event(), list[str]()

    def call(person: str) -> None:
        running.append(person)
        go.wait(60)

    accounts = [f"system:serviceaccount:theirs:{number}" for number in range(8)]
    calls = [turns.submit(account, partial(call, account)) for account in accounts]
    assert turns.submit("alice", lambda: 7).result(60) == 7
    assert set(running) <= set(accounts[:2])
    go.set()
    wait(calls, 60)
    assert sorted(running) == accounts
