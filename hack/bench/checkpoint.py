"""`make bench-checkpoint`: checkpoints to and from a local S3 server, against bare s3fs in the same run.

One large checkpoint and one of many small files. The bare uploads are `put_file` of the large file and a loop of
`put_file` over the small ones; the bare downloads are `get_file`. Rounds alternate, and the medians are compared.
BENCH_MEGABYTES and BENCH_FILES change the sizes. `report` describes the figures.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.report import ROUNDS, Reach, progress, report, size

# Of the time of bare s3fs: 0.7 of its speed with a large file, and a half of it with many small ones.
_LARGE, _SMALL = Reach(max_ratio=1 / 0.7), Reach(max_ratio=2.0)
_BUCKET = "bench"
_BLOCK = 2**20


def main() -> int:
    """Runs the benchmark and returns the exit code."""
    megabytes = int(os.environ.get("BENCH_MEGABYTES", size(256, tiny=1)))
    count = int(os.environ.get("BENCH_FILES", size(1000, tiny=10)))
    with tempfile.TemporaryDirectory(prefix="bench-checkpoint-") as root, _server(Path(root)) as environ:
        os.environ.update(environ)
        large, small = Path(root, "large"), Path(root, "small")
        for folder in (large, small):
            (folder / "checkpoint-1").mkdir(parents=True)
        with (large / "checkpoint-1/model.bin").open("wb") as file:
            for _ in range(megabytes):
                file.write(os.urandom(_BLOCK))
        for number in range(count):
            (small / f"checkpoint-1/{number}.bin").write_bytes(os.urandom(1000))
        ok = _compare("large", large, Path(root), _LARGE, megabytes=megabytes)
        ok &= _compare("small", small, Path(root), _SMALL, files=count)
    return 0 if ok else 1


def _compare(kind: str, work: Path, root: Path, reach: Reach, **sizes: int) -> bool:
    """Prints the figures of this kind of checkpoint. Returns whether they have reached their target."""
    import s3fs

    bare = s3fs.S3FileSystem(skip_instance_cache=True)
    bare.mkdirs(_BUCKET, exist_ok=True)
    files = sorted((work / "checkpoint-1").iterdir())
    times: dict[str, list[float]] = {"bare upload": [], "upload": [], "bare download": [], "restore": []}
    for number in range(ROUNDS):
        prefix = f"{_BUCKET}/bare-{work.name}-{number}"
        uri = f"s3://{_BUCKET}/{work.name}-{number}"
        target = root / "target"

        def put(prefix: str = prefix) -> None:
            for file in files:
                bare.put_file(str(file), f"{prefix}/{file.name}")

        def get(prefix: str = prefix, target: Path = target) -> None:
            target.mkdir()
            for file in files:
                bare.get_file(f"{prefix}/{file.name}", str(target / file.name))

        times["bare upload"].append(_time(put))
        times["upload"].append(_saved(work, uri))
        times["bare download"].append(_time(get))
        shutil.rmtree(target)
        times["restore"].append(_restored(uri, target))
        shutil.rmtree(target)
        for each in (f"{_BUCKET}/{work.name}-{number}", prefix):
            bare.rm(each, recursive=True)
        progress(f"{kind}: round {number + 1} of {ROUNDS}")
    pairs = (("upload", "bare upload"), ("restore", "bare download"))
    reached = [
        report(f"checkpoint_{ours}_{kind}", "s", times[ours], baselines=times[theirs], reach=reach, **sizes)
        for ours, theirs in pairs
    ]
    return all(reached)


def _time(work: Callable[[], object]) -> float:
    started = time.monotonic()
    work()
    return time.monotonic() - started


def _saved(work: Path, uri: str) -> float:
    """The seconds that the sidecar reports for the upload, from the first scan to the manifest."""
    command = [sys.executable, "-m", "tfjob_controller", "checkpoint", "save", f"--path={work}"]
    flags = [f"--storage-uri={uri}", "--settle-seconds=1", "--poll-seconds=1", "--log-level=error"]
    process = subprocess.Popen([*command, *flags], stdout=subprocess.PIPE)
    if process.stdout is None:
        raise RuntimeError("no standard output")
    found = json.loads(process.stdout.readline())
    process.terminate()
    process.communicate()
    return float(found["checkpoint"]["seconds"])


def _restored(uri: str, target: Path) -> float:
    """The seconds of a restore without those of importing the library, as the bare download has."""
    from tfjob_controller.storage.checkpoints.restorer import Restorer
    from tfjob_controller.storage.checkpoints.store import open_store
    from tfjob_controller.storage.uris import Redactor, parse
    from tfjob_controller.telemetry import logging
    from tfjob_controller.util.clock import RealClock

    logging.configure("json", "error")
    parsed: Any = parse(uri)
    restorer = Restorer(
        store=open_store(parsed, os.environ, ""),
        uri=parsed,
        path=str(target),
        parallel=4,
        retries=3,
        clock=RealClock(),
        redact=Redactor({}),
    )
    return _time(restorer.run)


@contextmanager
def _server(root: Path) -> Iterator[dict[str, str]]:
    """A moto server in a process of its own, so that it does not share an interpreter with what is measured."""
    program = (
        "import time; from moto.server import ThreadedMotoServer; s = ThreadedMotoServer(ip_address='127.0.0.1',"
        " port=0, verbose=False); s.start(); print(s.get_host_and_port()[1], flush=True); time.sleep(86400)"
    )
    with (root / "server.log").open("w") as log:
        server = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=log)
    try:
        if server.stdout is None:
            raise RuntimeError("no standard output")
        port = int(server.stdout.readline())
        keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1"}
        yield {
            **keys,
            "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{port}",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        }
    finally:
        server.kill()
        server.wait()


if __name__ == "__main__":
    sys.exit(main())
