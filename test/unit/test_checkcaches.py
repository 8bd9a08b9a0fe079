"""hack/checkcaches.py finds caches that texts of strangers fill."""

from __future__ import annotations

import pytest

import checkcaches


def told(source: str, bounds: dict[str, str] | None = None) -> list[str]:
    return list(checkcaches.problems({"a.py": source}, bounds or {}))


@pytest.mark.parametrize(
    "source",
    [
        "from functools import lru_cache\n@lru_cache(maxsize=8192)\ndef f(text: str): ...",
        "from functools import lru_cache\n@lru_cache\ndef f(text: str): ...",
        "import functools\n@functools.cache\ndef f(text): ...",
        "import functools\nf = functools.lru_cache(maxsize=10)(g)",
        "from functools import cache as remembered\n@remembered\ndef f(*texts: type[int]): ...",
        "from cachetools import TTLCache\nclass A:\n    def __init__(self):\n        self.f: int = TTLCache(10, 10)",
        "import cachetools\nf = wrapped(cachetools.LRUCache(10))",
        "from cachetools import LRUCache\ndef f():\n    return LRUCache(10)",
        "from cachetools import LRUCache, cached\n@cached(LRUCache(10))\ndef f(text: str): ...",
    ],
)
def test_a_cache_without_a_bound_in_bytes_is_named(source: str) -> None:
    [problem] = told(source)
    assert "has no bound in bytes" in problem


@pytest.mark.parametrize(
    "source",
    [
        "from functools import cache\n@cache\ndef f(): ...",
        "import functools\n@functools.cache\ndef f(kind: type[int]): ...",
        "from functools import cached_property, partial\ng = partial(f, 1)",
        "cache = {}\ncache(1)",
    ],
)
def test_what_no_text_fills_needs_no_bound(source: str) -> None:
    assert told(source) == []


def test_an_entry_without_its_cache_is_named() -> None:
    assert told("", {"a.py: f": "1 MB"}) == ["hack/checkcaches.py: there is no cache a.py: f"]


def test_all_caches_of_the_project_have_a_bound() -> None:
    assert checkcaches.main() == 0
