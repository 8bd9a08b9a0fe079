"""`make bench-cache`: memory of a cached pod.

Each measurement of memory runs in its own process, so that none finds the memory of another. Its pods come from memory
as a streaming list: realistic ones, running, with managedFields. A real API server would deliver the same objects, but
20,000 of them and their statuses would have to be created for each run.

- `rss_per_cached_pod`: growth of the resident set by an informer with two indexes and a handler, per pod. The baseline
  is the size of the JSON.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from bench.objects import initial
from bench.report import ROUNDS, Reach, progress, report, size
from bench.usage import resident_bytes
from bench.watch import Counter, FromMemory, informer_of_pods

POD_COUNT = size(20_000, tiny=50)
_SAMPLE = size(2000, tiny=50)
_LIMIT_SECONDS = 300.0


def measure_here() -> tuple[int, int]:
    """Fills a cache in this process; returns the number of objects, and the bytes by which the resident set grew."""
    requester = FromMemory(initial(POD_COUNT), ())
    informer = informer_of_pods(requester)
    registration = informer.add_handler(Counter(-1))
    before = resident_bytes(os.getpid())
    begin = time.perf_counter()
    informer.start()
    while not registration.has_synced:
        if time.perf_counter() - begin > _LIMIT_SECONDS:
            raise TimeoutError(str(informer.statistics()))
        time.sleep(0.005)
    gc.collect()
    result = len(informer.store), resident_bytes(os.getpid()) - before
    informer.stop()
    return result


def bytes_per_pod() -> float:
    """Returns the growth of the resident set of a new process."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        objects, growth = process.submit(measure_here).result()
    if objects != POD_COUNT:
        raise RuntimeError(f"{objects} of {POD_COUNT} pods are cached")
    return growth / POD_COUNT


def main() -> int:
    """Prints all figures. Returns 1 if one missed its target."""
    json_bytes = sum(map(len, initial(_SAMPLE))) // _SAMPLE
    progress(f"{POD_COUNT} pods of {json_bytes} bytes")
    memory = [bytes_per_pod() for _ in range(ROUNDS)]
    most = Reach(max_value=10 * 1024)
    ok = report("rss_per_cached_pod", "bytes", memory, baselines=[json_bytes], reach=most, pods=POD_COUNT)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
