"""Who loses a place when another person takes one."""

from __future__ import annotations

from tfjob_controller.dashboard.shares import Shares


def test_the_oldest_of_a_person_gives_way_to_that_persons_newest() -> None:
    places = Shares[int](each=2, total=10)
    assert [places.take(person, index) for index, person in enumerate("abaa")] == [[], [], [], [0]]


def test_a_renewed_place_is_the_newest_and_a_demoted_one_goes_first() -> None:
    places = Shares[int](each=3, total=10)
    for index in range(3):
        places.take("a", index)
    places.renew(0)
    assert places.take("a", 3) == [1]
    places.demote(3)
    assert places.take("a", 4) == [3]
    places.demote(99)
    places.release(2)
    assert (places.take("a", 5), len(places)) == ([], 3)


def test_when_all_places_are_taken_whoever_has_most_loses_the_oldest() -> None:
    places = Shares[int](each=4, total=4)
    for index, person in enumerate("abbb"):
        places.take(person, index)
    assert places.take("c", 4) == [1]


def test_nobody_displaces_a_person_who_has_fewer() -> None:
    places = Shares[int](each=4, total=4)
    for index, person in enumerate("abcc"):
        places.take(person, index)
    assert places.take("c", 4) == [2]


def test_accounts_of_a_namespace_count_together_when_all_places_are_taken() -> None:
    places = Shares[int](each=4, total=4)
    for index in range(3):
        places.take(f"system:serviceaccount:evil:robot-{index}", index)
    places.take("system:serviceaccount:other:robot", 3)
    assert [places.take(f"system:serviceaccount:evil:robot-{index}", index) for index in (4, 5)] == [[0], [1]]
    assert places.take("person", 6) == [2]
