"""The pages of ended jobs: their addresses and files, and what a storage or a record that takes long holds up."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.testclient import TestClient

from helpers.answering import Answering, Request
from helpers.fakeclock import FakeClock
from helpers.poll import eventually
from tfjob_controller.client.diagnostics.timeline import TimelineEntry
from tfjob_controller.client.history.filesystems import Directory
from tfjob_controller.client.history.reading import History
from tfjob_controller.client.history.record import LogFile, Record
from tfjob_controller.client.history.store import HistoryStore
from tfjob_controller.dashboard.app import create_app
from tfjob_controller.dashboard.keptjobs import KeptJobs
from tfjob_controller.dashboard.pages import history
from tfjob_controller.dashboard.pages.login import Logins, OneTimeLink
from tfjob_controller.dashboard.services import ALONE
from tfjob_controller.dashboard.users import User

HOST = "127.0.0.1:8001"
LOG = LogFile("node-0", "node", 100)
LINES = b"2026-01-01T00:00:00Z loss=0.5 10%\r20%\n2026-01-01T00:00:01.5Z loss=0.25 \x0b\x1e\n"


class Rights(Answering):
    """An API server that only knows of rights: all but those to `hidden` resources."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden: tuple[str, ...] = ()

    def answer(self, request: Request) -> bytes:
        resource = request.body["spec"]["resourceAttributes"]["resource"]
        return json.dumps({"status": {"allowed": resource not in self.hidden and "*" not in self.hidden}}).encode()


class Storage(Directory):
    """Counts its listings, which wait for `go`."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.listed: list[str] = []
        self.go = threading.Event()
        self.go.set()

    def folders(self, path: str) -> list[str]:
        self.listed.append(path)
        return super().folders(path)

    def files(self, path: str) -> dict[str, int]:
        self.listed.append(path)
        assert self.go.wait(60)
        return super().files(path)


@pytest.fixture
def api() -> Rights:
    return Rights()


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(tmp_path)


def record(name: str = "train", namespace: str = "team", text: str = "") -> Record:
    timeline = [TimelineEntry("2026-01-01T00:00:00Z", "pod", "container", text)] if text else []
    return Record(
        "kubeflow.org/v2alpha1",
        "TrainJob",
        namespace,
        name,
        "u",
        "Failed",
        "2026-01-01T00:00:00Z",
        logs=[LOG],
        logged_metrics=["loss"],
        timeline=timeline,
    )


def write(storage: Storage, job: Record, lines: bytes = LINES) -> str:
    """Keeps a job with a log; returns the address of its page."""
    store = HistoryStore(storage)
    store.write_log(job.entry, LOG, lines)
    store.write(job)
    return f"/history/{job.namespace}/TrainJob/{job.entry.name}/u"


@contextmanager
def visit(api: Rights, storage: Storage) -> Iterator[TestClient]:
    clock = FakeClock()
    user = User("me", api, "team", "there", clock)
    kept = History(HistoryStore(storage))
    app = create_app(Logins(link=OneTimeLink(user, "secret")), [HOST], clock, is_secure=False, kept=kept)
    with TestClient(app, base_url=f"http://{HOST}") as browser:
        browser.cookies.update(browser.get("/login?token=secret", follow_redirects=False).cookies)
        yield browser


def test_a_name_that_is_cut_at_a_separator_has_a_page(api: Rights, storage: Storage) -> None:
    page = write(storage, record("n" * 119 + "-" + "x" * 20))
    with visit(api, storage) as browser:
        assert page in browser.get("/history?namespace=team").text
        assert browser.get(page).status_code == 200


def test_a_log_is_a_file_with_or_without_times(api: Rights, storage: Storage) -> None:
    page = write(storage, record())
    with visit(api, storage) as browser:
        file = browser.get(f"{page}/log/file", params={"replica": "node-0.node", "timestamps": "true"})
        assert file.content == LINES
        assert 'filename="train.node-0.node.log"' in file.headers["Content-Disposition"]
        assert browser.get(f"{page}/log/file").content == b"loss=0.5 10%\r20%\nloss=0.25 \x0b\x1e\n"


def test_only_a_line_feed_ends_a_line_and_charts_know_its_time(api: Rights, storage: Storage) -> None:
    page = write(storage, record())
    with visit(api, storage) as browser:
        lines = browser.get(f"{page}/log").text
        assert lines.count("data: 2026-01-01T00:00:0") == 2
        assert "20%" in lines
        (loss,) = browser.get(f"{page}/metrics").json()
        assert (loss["values"], loss["times"]) == ([0.5, 0.25], [1767225600.0, 1767225601.5])


def test_series_of_equal_uids_in_two_namespaces_are_two(storage: Storage) -> None:
    write(storage, record())
    write(storage, record(namespace="other"), b"loss=7\n")
    kept = KeptJobs(History(HistoryStore(storage)))
    series = [kept.series(record(namespace=namespace))[0].values for namespace in ("team", "other")]
    assert series == [[0.5, 0.25], [7.0]]


def test_nothing_is_listed_for_a_person_without_rights(api: Rights, storage: Storage) -> None:
    write(storage, record())
    api.hidden = ("*",)
    storage.listed.clear()
    with visit(api, storage) as browser:
        assert "You may not get the jobs of all namespaces" in browser.get("/history?namespace=").text
    assert storage.listed == []


def test_a_storage_that_hangs_holds_up_no_request_to_the_api_server(api: Rights, storage: Storage) -> None:
    write(storage, record())
    hung = ALONE.reads[1] + ALONE.kept[1]
    with visit(api, storage) as browser, ThreadPoolExecutor(hung) as pool:
        storage.go.clear()
        pages = [pool.submit(browser.get, f"/history?namespace=team-{number}") for number in range(hung)]
        try:
            eventually(lambda: len(api.sent) >= hung)
            eventually(lambda: len(storage.listed) >= ALONE.kept[1])
            api.hidden = ("*",)
            assert "You may not get the jobs" in browser.get("/history?namespace=another").text
        finally:
            storage.go.set()
        assert {page.result().status_code for page in pages} == {200}


def test_callers_at_the_same_time_share_one_listing(storage: Storage) -> None:
    write(storage, record())
    reader = History(HistoryStore(storage))
    storage.listed.clear()
    storage.go.clear()
    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(reader.jobs, "team") for _ in range(4)]
        eventually(lambda: len(storage.listed) > 0)
        storage.go.set()
        assert [len(call.result()) for call in calls] == [1] * 4
    assert storage.listed == ["v1/team/jobs"]


def test_each_text_of_a_record_is_bounded(api: Rights, storage: Storage) -> None:
    page = write(storage, msgspec.structs.replace(record(text="y" * 50_000), reason="z" * 50_000))
    with visit(api, storage) as browser:
        html = browser.get(page).text
    assert (html.count("y" * 1000), html.count("z" * 1000)) == (1, 1)


def test_what_takes_long_to_show_is_made_in_a_thread(
    api: Rights, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []

    def noted(call: Callable[..., Any], *values: Any) -> Any:
        threads.append(threading.current_thread().name.rpartition("_")[0])
        return call(*values)

    for name in ("line_html", "server_now"):
        monkeypatch.setattr(history, name, partial(noted, getattr(history, name)))
    page = write(storage, record())
    with visit(api, storage) as browser:
        browser.get(page)
        assert threads == ["kept"]
        browser.get(f"{page}/log")
    assert threads == ["kept"] * 3
