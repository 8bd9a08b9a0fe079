"""The rules of controller/remembered.py: what is known of objects that nobody watches."""

from __future__ import annotations

from tfjob_controller.api.core import Service
from tfjob_controller.controller.remembered import Remembered
from tfjob_controller.kube.meta import ObjectMeta


def named(name: str, uid: str = "u1") -> Service:
    return Service(ObjectMeta(name=name, namespace="team", uid=uid))


def test_what_was_answered_is_remembered_by_its_key() -> None:
    known: Remembered[Service] = Remembered()
    assert known.get("team/a") is None
    first = named("a")
    assert known.assume(first)
    assert known.get("team/a") is first
    assert known.get("other/a") is None


def test_the_last_answer_counts() -> None:
    known: Remembered[Service] = Remembered()
    known.assume(named("a"))
    last = named("a", "u2")
    known.assume(last)
    assert known.get("team/a") is last


def test_what_was_not_asked_for_longest_is_forgotten_and_memory_has_a_bound() -> None:
    known: Remembered[Service] = Remembered()
    for index in range(5000):
        known.assume(named(f"a{index}"))
        assert known.get("team/a0") is not None
    assert known.get("team/a1") is None
    assert known.get("team/a4999") is not None
