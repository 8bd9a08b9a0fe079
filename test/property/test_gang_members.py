"""`wanted_members`, on which gang scheduler and owner must agree at every step of a resize."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from helpers.gangs import a_gang, workers
from tfjob_controller.api.gang import Gang, GangStatus, NodePlacement, wanted_members

INDEXES = st.sets(st.integers(0, 9))
COUNTS = st.integers(0, 12)


def names(indexes: set[int]) -> tuple[str, ...]:
    return tuple(f"worker-{index}" for index in sorted(indexes))


def gang_of(placed: set[int], leaving: set[int], count: int) -> Gang:
    status = GangStatus(placement=(NodePlacement("n1", names(placed)),), leaving=names(leaving))
    return a_gang("a", workers(1, name="ps"), workers(count), status=status)


def workers_of(gang: Gang) -> set[str]:
    return set(wanted_members(gang)[1:])


@given(INDEXES, INDEXES, COUNTS)
def test_there_are_as_many_as_the_spec_says_and_no_name_twice(placed: set[int], leaving: set[int], count: int) -> None:
    members = wanted_members(gang_of(placed, leaving, count))
    assert len(members) == len(set(members)) == 1 + count


@given(INDEXES, INDEXES, COUNTS)
def test_none_comes_while_one_goes(placed: set[int], leaving: set[int], count: int) -> None:
    wanted, has = workers_of(gang_of(placed, leaving, count)), set(names(placed))
    assert wanted <= has or has <= wanted


@given(INDEXES, INDEXES, COUNTS)
def test_leaving_members_are_removed_before_all_others(placed: set[int], leaving: set[int], count: int) -> None:
    wanted = workers_of(gang_of(placed, leaving, count))
    gone = set(names(placed)) - wanted
    assert gone <= set(names(leaving)) or not (wanted & set(names(placed & leaving)))


@given(INDEXES, INDEXES, COUNTS)
def test_asking_again_after_the_placement_has_followed_changes_nothing(
    placed: set[int], leaving: set[int], count: int
) -> None:
    wanted = workers_of(gang_of(placed, leaving, count))
    followed = {int(member.removeprefix("worker-")) for member in wanted}
    assert workers_of(gang_of(followed, set(), count)) == wanted


@given(INDEXES, INDEXES)
def test_a_shrink_that_is_carried_out_at_once_is_the_requested_one(placed: set[int], leaving: set[int]) -> None:
    gang = gang_of(placed, leaving & placed, len(placed) - len(leaving & placed))
    assert workers_of(gang) == set(names(placed - leaving))
