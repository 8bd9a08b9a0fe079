"""`make bench-cache`: memory of a cached pod.

Each measurement of memory runs in its own process, so that none finds the memory of another. `bench.server` serves the
pods as a streaming list over HTTP: realistic ones of 7.6 KB, running, with managedFields. A real API server would
deliver the same objects, but 20,000 of them and their statuses would have to be created for each run.

- `rss_per_cached_pod`: growth of the resident set by an informer with two indexes and a handler, per pod. The baseline
  is the size of the JSON.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from bench import server
from bench.report import ROUNDS, Reach, progress, report, size
from bench.usage import resident_bytes
from bench.watch import Counter, informer_of_pods
from tfjob_controller.kube.config.kubeconfig import load_config
from tfjob_controller.kube.http.transport import Transport

POD_COUNT = size(20_000, tiny=50)
_SAMPLE = size(2000, tiny=50)
_LIMIT_SECONDS = 300.0


def measure_here(kubeconfig: Path) -> tuple[int, int]:
    """Fills a cache in this process; returns the number of objects, and the bytes by which the resident set grew."""
    transport = Transport(load_config(str(kubeconfig)), qps=0)
    informer = informer_of_pods(transport)
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
    transport.close()
    return result


def bytes_per_pod(kubeconfig: Path) -> float:
    """Returns the growth of the resident set of a new process."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        objects, growth = process.submit(measure_here, kubeconfig).result()
    if objects != POD_COUNT:
        raise RuntimeError(f"{objects} of {POD_COUNT} pods are cached")
    return growth / POD_COUNT


def main() -> int:
    """Prints all figures. Returns 1 if one missed its target."""
    json_bytes = sum(map(len, server.lines(_SAMPLE, 0))) // _SAMPLE
    progress(f"{POD_COUNT} pods of {json_bytes} bytes")
    with tempfile.TemporaryDirectory() as folder, server.running(POD_COUNT, 0) as url:
        kubeconfig = server.kubeconfig(url, Path(folder))
        memory = [bytes_per_pod(kubeconfig) for _ in range(ROUNDS)]
    most = Reach(max_value=10 * 1024)
    ok = report("rss_per_cached_pod", "bytes", memory, baselines=[json_bytes], reach=most, pods=POD_COUNT)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
