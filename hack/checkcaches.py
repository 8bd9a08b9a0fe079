"""Checks that each cache in `src` has a bound: `python hack/checkcaches.py` exits with 1 and names those without one.

A cache that is bounded by its number of entries is not bounded: strangers write the texts that are its keys, and 8,192
times of 36 KB have taken 293 MB. So each use of `functools.cache`, `functools.lru_cache` and the classes and decorators
of `cachetools` is in the table `BOUNDS`, with what bounds its bytes. A function without arguments needs no entry, and
neither does one whose arguments are types.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
_SOURCES = "src/tfjob_controller"
_MODULES = ("functools", "cachetools")
_FUNCTIONS = ("cache", "lru_cache", "cached", "cachedmethod")
_CLASSES = ("Cache", "FIFOCache", "LFUCache", "LRUCache", "RRCache", "TLRUCache", "TTLCache")
_CACHES = frozenset((*_FUNCTIONS, *_CLASSES))

# By the cache's place, at most how many bytes it takes and why.
BOUNDS: Mapping[str, str] = {
    "api/common/quantity.py: _known_milli": "1 MB: 4,096 texts of 32 characters",
    "client/history/reading.py: self._listings": "80 MB: 200,000 entries with names of 120 characters",
    "controller/podevents.py: self._paused_until": "1 MB: by namespace, 63 characters",
    "controller/writer.py: self._by_key": "24 MB: 2,000 objects of 12 KB, which `kube.kept` decodes",
    "dashboard/feeds.py: self._contents": "8 pages of at most 100 rows for each feed",
    "dashboard/loginrate.py: self._tried": "1 MB: the addresses of 4,096 clients, and a number for each",
    "dashboard/keptjobs.py: self._series": "16 MB: of 32 jobs, 8 series of 1,000 points",
    "dashboard/services.py: self._values": "100 readings; their keys are names that were checked",
    "dashboard/users.py: self._allowed": "1,000 answers for each person; their keys are names that were checked",
    "dashboard/users.py: self._rejected": "hashes of 200 tokens",
    "kube/flowcontrol.py: self._buckets": "a bucket for 4,096 namespaces, UIDs, addresses, or usernames of reviews",
    "scheduling/fairshare.py: _weight": "1 MB: 1,024 texts of 32 characters",
    "scheduling/nodefilter.py: _cached": "2 MB of JSON, by its size",
    "scheduling/nodefilter.py: _node_filter": "uses `_cached`",
    "jobs/frameworks/environment.py: _of_workers": "12 MB: the addresses of 4 jobs of 10,000 nodes",
    "kinds/kubeflowv1/kind.py: self._cleaned": "8 MB: 50,000 UIDs, which the API server makes",
    "kinds/kubeflowtrainer/status.py: _cached": "8 MB, by the size of the texts",
    "kinds/kubeflowtrainer/status.py: _decoded": "uses `_cached`",
    "programs/history/recorder.py: self._indexes": "35 MB: 50,000 entries with names of 120 characters",
    "util/timestamps.py: _parsed_time": "3 MB: 16,384 texts of 40 characters",
}


def caches(source: str) -> Iterator[tuple[str, int]]:
    """The name and line of each cache in a module whose keys may be texts."""
    tree = ast.parse(source)
    names = _imported(tree)
    named: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            named |= {id(inner) for each in node.decorator_list for inner in ast.walk(each)}
            if any(_is_cache(each, names) for each in node.decorator_list) and not _has_bounded_keys(node.args):
                yield node.name, node.lineno
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            calls = [each for each in ast.walk(node.value) if isinstance(each, ast.Call)]
            named |= {id(each) for each in calls}
            if any(_is_cache(each.func, names) for each in calls):
                yield ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target), node.lineno
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and id(node) not in named and _is_cache(node.func, names):
            yield "a cache without a name", node.lineno


def problems(sources: Mapping[str, str], bounds: Mapping[str, str]) -> Iterator[str]:
    """One line for each cache without an entry, and for each entry without a cache. Takes path → source."""
    places = set()
    for path, source in sources.items():
        for name, line in caches(source):
            place = f"{path}: {name}"
            places.add(place)
            if place not in bounds:
                yield f"{_SOURCES}/{path}:{line}: the cache {name} has no bound in bytes in hack/checkcaches.py"
    for place in sorted(bounds.keys() - places):
        yield f"hack/checkcaches.py: there is no cache {place}"


def _imported(tree: ast.Module) -> set[str]:
    """The names under which a module knows caches."""
    return {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in _MODULES
        for alias in node.names
        if alias.name in _CACHES
    }


def _is_cache(node: ast.expr, names: set[str]) -> bool:
    if isinstance(node, ast.Call):
        return _is_cache(node.func, names)
    if isinstance(node, ast.Attribute):
        return isinstance(node.value, ast.Name) and node.value.id in _MODULES and node.attr in _CACHES
    return isinstance(node, ast.Name) and node.id in names


def _has_bounded_keys(arguments: ast.arguments) -> bool:
    """Whether all arguments are types, of which a program has a fixed number."""
    if arguments.vararg is not None or arguments.kwarg is not None:
        return False
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return all(each.annotation is not None and ast.unparse(each.annotation).startswith("type[") for each in every)


def main() -> int:
    root = _ROOT / _SOURCES
    sources = {path.relative_to(root).as_posix(): path.read_text("utf-8") for path in sorted(root.rglob("*.py"))}
    found = list(problems(sources, BOUNDS))
    print("\n".join(found) or "each cache has a bound")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
