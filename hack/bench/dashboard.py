"""`make bench-dashboard`: the dashboard with 1,000 jobs, 10,000 pods and a history, in a real browser and API server.

- `dashboard_first_paint`: the first contentful paint of the list of jobs, as the browser's own performance entry has
  it. Each round is a browser window with an empty cache.
- `dashboard_change_seen`: from the response to a write of a job's status until the browser shows it, in a list of 100
  rows; the slowest of `CHANGES`.
- `dashboard_change_seen_100`: the same while 100 browsers have the list open. They are connections that read the
  stream of changes and draw nothing.
- `dashboard_history_paint`: as the first, of the list of `KEPT` ended jobs in a directory.
- `dashboard_rss`: resident set of the dashboard's process then.

No controller runs: statuses are written here.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from playwright.sync_api import Browser, Page

from bench import usage
from bench.jobs import PODS, TFJOBS, Object, tfjob
from bench.report import ROUNDS, Reach, progress, report, size
from bench.stage import Stage, in_parallel, namespace, stage, unique
from localcluster.chromium import chromium
from tfjob_controller.client.history.filesystems import open_filesystem
from tfjob_controller.client.history.record import Record
from tfjob_controller.client.history.store import HistoryStore

JOB_COUNT = size(1000, tiny=5)
PODS_OF_JOB = 10
BROWSERS = size(100, tiny=2)
CHANGES = size(20, tiny=2)
KEPT = size(10_000, tiny=5)
# As many rows as a page has.
SHOWN = "job-00"
_PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
_LIMIT_MS = 60_000
# Longer than the pause in which the dashboard collects changes.
_REST_SECONDS = 1.0
_READ_BYTES = 65_536


def main() -> int:
    """Prints all figures. Returns 1 if one missed its target."""
    with (
        stage() as ready,
        namespace(ready.api, unique("bench-dashboard")) as space,
        tempfile.TemporaryDirectory(prefix="bench-history-") as kept,
    ):
        _fill(ready, space)
        _keep(Path(kept), space)
        with _dashboard(ready, space, kept) as (process, address), chromium(progress) as browser:
            page = browser.new_page()
            page.goto(address)
            origin = "{0.scheme}://{0.netloc}".format(urlsplit(address))
            listed = f"{origin}/jobs?namespace={space}&text={SHOWN}"
            ok = _report_paint("dashboard_first_paint", browser, page, f"{origin}/jobs?namespace={space}", JOB_COUNT)
            ok &= _report_paint("dashboard_history_paint", browser, page, f"{origin}/history?namespace={space}", KEPT)
            page.goto(listed)
            page.get_by_text(f"{SHOWN}01").wait_for()
            reach = Reach(max_value=1.0)
            values = [_change_seen(ready, space, page, number) for number in range(CHANGES)]
            ok &= report("dashboard_change_seen", "s", [max(values)], reach=reach, changes=CHANGES)
            with _browsers(page, origin):
                values = [_change_seen(ready, space, page, CHANGES + number) for number in range(CHANGES)]
                ok &= report("dashboard_change_seen_100", "s", [max(values)], reach=reach, browsers=BROWSERS)
                resident = usage.resident_bytes(process.pid) / 1e6
                ok &= report("dashboard_rss", "MB", [resident], reach=Reach(max_value=150.0), browsers=BROWSERS)
    return 0 if ok else 1


def _fill(ready: Stage, space: str) -> None:
    """Creates the jobs with a status as of running ones, and their pods."""
    progress(f"creating {JOB_COUNT} jobs and {JOB_COUNT * PODS_OF_JOB} pods")
    names = [f"job-{number:04d}" for number in range(JOB_COUNT)]

    def create(name: str) -> None:
        ready.api.create(TFJOBS.format(space), tfjob(name, PODS_OF_JOB))
        _write(ready, space, name, "")
        for index in range(PODS_OF_JOB):
            ready.api.create(PODS.format(space), _pod(name, index))

    in_parallel(create, names)


def _keep(folder: Path, space: str) -> None:
    """Writes a history of ended jobs, one a minute."""
    progress(f"keeping {KEPT} ended jobs")
    store, last = HistoryStore(open_filesystem(str(folder), os.environ)), datetime.now(UTC)
    for number in range(KEPT):
        ended = (last - timedelta(minutes=number)).strftime("%Y-%m-%dT%H:%M:%SZ")
        manifest = tfjob(f"kept-{number:05d}", PODS_OF_JOB)
        store.write(
            Record(
                api_version=manifest["apiVersion"],
                kind=manifest["kind"],
                namespace=space,
                name=manifest["metadata"]["name"],
                uid=str(uuid.UUID(int=number)),
                state="Failed" if number % 7 == 0 else "Succeeded",
                ended=ended,
                reason="worker-0 failed: exit code 1" if number % 7 == 0 else "",
                body=msgspec.Raw(msgspec.json.encode(manifest)),
            )
        )


def _pod(job: str, index: int) -> Object:
    labels = {"kubeflow.org": "", "tf_job_name": job, "job_type": "WORKER", "task_index": str(index)}
    container = {"name": "tensorflow", "image": "localhost/trainer:1"}
    # No scheduler considers it, so nothing changes it.
    spec = {"containers": [container], "schedulerName": "none"}
    return {"metadata": {"name": f"{job}-{index}", "labels": labels}, "spec": spec}


def _write(ready: Stage, space: str, name: str, reason: str) -> None:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ready_counts = {"master": "1/1", "worker": f"{PODS_OF_JOB - 1}/{PODS_OF_JOB - 1}"}
    status = {"phase": "Running", "state": "Running", "summary": "Running", "reason": reason, "startTime": now}
    ready.api.patch(f"{TFJOBS.format(space)}/{name}/status", {"status": {**status, "ready": ready_counts}})


@contextmanager
def _dashboard(ready: Stage, space: str, kept: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Yields the dashboard's process, and the address that can be opened once."""
    program = [sys.executable, "-m", "tfjob_controller.kubectl"]
    command = [*program, "dashboard", "--no-browser", "-n", space, f"--history={kept}"]
    environment = {**os.environ, "KUBECONFIG": str(ready.kubeconfig)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process, process.stdout.readline().strip() if process.stdout else ""
        finally:
            process.terminate()


def _report_paint(name: str, browser: Browser, page: Page, address: str, jobs: int) -> bool:
    values = []
    for number in range(1, ROUNDS + 1):
        with browser.new_context(storage_state=page.context.storage_state()) as context:
            fresh = context.new_page()
            fresh.goto(address)
            fresh.locator("tbody tr").first.wait_for()
            values.append(float(fresh.evaluate(_PAINT)))
        progress(f"round {number} of {ROUNDS}: first contentful paint after {values[-1]:.0f} ms")
    return report(name, "ms", values, reach=Reach(max_value=1000.0), jobs=jobs)


def _change_seen(ready: Stage, space: str, page: Page, number: int) -> float:
    """Returns the seconds from a write until the page shows it."""
    words = f"change {number} of the benchmark"
    _write(ready, space, f"{SHOWN}{number % min(JOB_COUNT, 100):02d}", words)
    begin = time.monotonic()
    page.get_by_text(words).wait_for(timeout=_LIMIT_MS)
    seconds = time.monotonic() - begin
    time.sleep(_REST_SECONDS)
    return seconds


@contextmanager
def _browsers(page: Page, origin: str) -> Iterator[None]:
    """Opens the page's stream of changes `BROWSERS` times, and reads whatever arrives."""
    stream = page.locator("[sse-connect]").get_attribute("sse-connect") or ""
    cookie = "; ".join(f"{entry['name']}={entry['value']}" for entry in page.context.cookies())
    host = urlsplit(origin)
    head = f"GET {stream} HTTP/1.1\r\nHost: {host.netloc}\r\nCookie: {cookie}\r\n\r\n".encode()
    with ExitStack() as open_:
        for _ in range(BROWSERS):
            connection = open_.enter_context(socket.create_connection((host.hostname, host.port)))
            connection.sendall(head)
            answer = connection.recv(_READ_BYTES)
            if not answer.startswith(b"HTTP/1.1 200 "):
                raise RuntimeError(f"the dashboard has refused a stream: {answer[:200]!r}")
            reader = threading.Thread(target=_drain, args=(connection,))
            reader.start()
            open_.callback(reader.join)
            open_.callback(connection.shutdown, socket.SHUT_RDWR)
        yield


def _drain(connection: socket.socket) -> None:
    """Reads until the connection is shut down."""
    while connection.recv(_READ_BYTES):
        pass


if __name__ == "__main__":
    sys.exit(main())
