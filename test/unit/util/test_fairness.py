"""The rules of util/fairness.py."""

from __future__ import annotations

import pytest

from tfjob_controller.util.fairness import FairCache


@pytest.fixture
def cache() -> FairCache[str, int]:
    return FairCache(4)


def test_what_was_put_is_found_in_its_namespace_alone(cache: FairCache[str, int]) -> None:
    assert cache.put("a", "x", 1) is None
    assert (cache.get("a", "x"), cache.get("b", "x"), len(cache)) == (1, None, 1)


def test_the_namespace_with_the_most_loses_its_oldest(cache: FairCache[str, int]) -> None:
    cache.put("small", "x", 0)
    for number in range(3):
        cache.put("large", f"{number}", number)
    assert cache.put("large", "3", 3) == 0
    assert cache.put("small", "y", 9) == 1
    assert cache.drain() == [0, 2, 3, 9]


def test_a_value_that_is_put_again_is_the_newest(cache: FairCache[str, int]) -> None:
    for number in range(4):
        cache.put("a", f"{number}", number)
    cache.put("a", "0", 10)
    assert cache.oldest() == 1
    assert cache.put("a", "4", 4) == 1
    assert cache.drain() == [2, 3, 10, 4]


def test_what_was_removed_counts_no_longer(cache: FairCache[str, int]) -> None:
    for number in range(4):
        cache.put("a", f"{number}", number)
    assert cache.remove("a", "1") == 1
    assert cache.remove("a", "1") is None
    assert cache.put("b", "x", 9) is None
    assert cache.put("b", "y", 9) == 0


def test_values_can_be_displaced_before_it_is_full(cache: FairCache[str, int]) -> None:
    for namespace, number in (("a", 0), ("b", 1), ("b", 2)):
        cache.put(namespace, f"{number}", number)
    assert [cache.displace() for _ in range(4)] == [1, 0, 2, None]


def test_of_many_namespaces_each_new_one_finds_a_place(cache: FairCache[str, int]) -> None:
    for number in range(100):
        cache.put(f"{number}", "x", number)
    assert cache.drain() == [96, 97, 98, 99]
    assert (len(cache), cache.oldest()) == (0, None)
