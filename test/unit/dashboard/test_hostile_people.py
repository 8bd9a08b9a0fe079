"""People with a token of the cluster who take all that they can get, and others who use the dashboard meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from starlette.routing import compile_path

from helpers.dashboardpeople import Site, dashboard_site, job_body
from helpers.poll import eventually
from tfjob_controller.dashboard import app  # noqa: F401 -- it registers the convertor
from tfjob_controller.dashboard.feeds import FEEDS_EACH, STARTS_PER_SECOND
from tfjob_controller.dashboard.users import SESSIONS_EACH
from tfjob_controller.kube.names import name_violation

STREAMS_EACH, LOGS_EACH = 12, 4


@pytest.fixture(scope="module")
def shared_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """For tests that leave nothing behind but logins."""
    with dashboard_site(tmp_path_factory.mktemp("site"), "--behind-tls-proxy") as running:
        yield running


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    # Without a proxy their address would have a rate of new connections.
    with dashboard_site(tmp_path, "--behind-tls-proxy") as running:
        yield running


def test_two_hundred_logins_of_one_account_log_out_nobody_else(site: Site) -> None:
    other = site.person("other.token")
    greedy = [site.person("greedy.token") for _ in range(201)]
    assert other.is_logged_in()
    assert [each.is_logged_in() for each in greedy] == [False] * (201 - SESSIONS_EACH) + [True] * SESSIONS_EACH


def test_two_hundred_tokens_of_one_account_lock_nobody_out(shared_site: Site) -> None:
    for index in range(201):
        assert shared_site.person().log_in(f"greedy.{index}") == 303
    assert shared_site.person("other.token").is_logged_in()


def test_a_persons_newest_streams_displace_the_oldest_and_nobody_elses(site: Site) -> None:
    other, greedy = site.person("other.token"), site.person("greedy.token")
    watching = other.stream("/events/jobs?namespace=theirs")
    streams = [greedy.stream(f"/events/jobs?namespace=space-{index}") for index in range(40)]
    assert [each.has_ended() for each in streams[-STREAMS_EACH:]] == [False] * STREAMS_EACH
    assert all(each.has_ended() for each in streams[:-STREAMS_EACH])
    assert not watching.has_ended()
    eventually(lambda: 0 < site.cluster.watches["greedy"] <= 2 * FEEDS_EACH)
    assert site.cluster.watches["other"] == 2


def test_a_person_who_has_started_many_feeds_waits_between_two_and_others_do_not(site: Site) -> None:
    other, greedy = site.person("other.token"), site.person("greedy.token")
    begin = time.monotonic()
    for index in range(60):
        greedy.stream(f"/events/jobs?namespace=space-{index}")
    # A feed of jobs has a watch for each of two kinds.
    eventually(lambda: site.cluster.watches_started["greedy"] >= 4 * FEEDS_EACH)
    assert other.get("/jobs?namespace=theirs")[0] == 200
    assert site.cluster.watches_started["other"] == 2
    started, seconds = site.cluster.watches_started["greedy"], time.monotonic() - begin
    assert started <= 2 * (2 * FEEDS_EACH + STARTS_PER_SECOND * seconds)


def test_a_stream_that_is_not_read_gives_way_as_well(site: Site) -> None:
    greedy = site.person("greedy.token")
    site.cluster.jobs["ns/tfjobs/wide"] = job_body(
        "ns", "wide", {"x": {f"key{index}": "<" * 90 for index in range(1500)}}
    )
    unread = [greedy.stream("/events/jobs/ns/tfjob/wide") for _ in range(STREAMS_EACH)]
    newer = [greedy.stream("/events/jobs?namespace=ns") for _ in range(STREAMS_EACH)]
    assert [each.has_ended() for each in newer] == [False] * STREAMS_EACH
    assert all(each.has_ended() for each in unread)


def test_a_persons_newest_logs_displace_the_oldest(site: Site) -> None:
    other, greedy = site.person("other.token"), site.person("greedy.token")
    site.cluster.jobs["ns/tfjobs/quiet"] = job_body("ns", "quiet")
    reading = other.stream("/logs/ns/tfjob/quiet")
    threads = Path(f"/proc/{site.process.pid}/task")
    logs = [greedy.stream("/logs/ns/tfjob/quiet") for _ in range(30)]
    assert [each.has_ended() for each in logs] == [True] * (30 - LOGS_EACH) + [False] * LOGS_EACH
    assert not reading.has_ended()
    names = [(each / "comm").read_text() for each in threads.iterdir()]
    assert len(names) < 60


def test_a_page_that_waits_for_the_api_server_shows_later_that_there_are_no_jobs(site: Site) -> None:
    stream = site.person("slow.token").stream("/events/jobs?namespace=empty", patience_seconds=60)
    # A stream without news sends a comment every 15 s.
    assert any(b"Loading the jobs of this namespace" in stream.response.read1(65_536) for _ in range(3))
    site.cluster.slow.set()
    assert any(b"No job is selected" in stream.response.read1(65_536) for _ in range(3))


def test_requests_that_wait_for_the_api_server_keep_nobody_else_waiting(site: Site) -> None:
    other, slow = site.person("other.token"), site.person("slow.token")
    answers: list[int] = []
    # Four run and 24 wait. More than 32 connections at a time would displace some of them.
    readers = [
        threading.Thread(target=lambda: answers.append(slow.get("/jobs?namespace=ns")[0]), daemon=True)
        for _ in range(4 + 24 + 1)
    ]
    for each in readers:
        each.start()
    eventually(lambda: answers == [429])
    assert [slow.get("/jobs?namespace=ns")[0] for _ in range(32)] == [429] * 32
    assert other.get("/jobs?namespace=ns")[0] == 200
    assert answers == [429]
    site.cluster.slow.set()
    for each in readers:
        each.join(60)
    assert answers.count(200) == 28


def test_a_manifest_of_a_million_bytes_of_empty_objects_is_shown_as_the_beginning_of_its_json(site: Site) -> None:
    person = site.person("viewer.token")
    site.cluster.jobs["ns/tfjobs/bomb"] = job_body("ns", "bomb", {"x": [{}] * 400_000})
    before = site.resident_bytes()
    for _ in range(2):
        status, page = person.get("/jobs/ns/tfjob/bomb")
        assert (status, "bytes, as JSON" in page, len(page) < 500_000) == (200, True, True)
    status, page = person.get("/new?from=tfjob/ns/bomb")
    assert (status, "too large for this form" in page) == (200, True)
    assert site.resident_bytes() - before < 60_000_000


def test_the_yaml_of_one_person_keeps_no_other_person_waiting(site: Site) -> None:
    other, greedy = site.person("other.token"), site.person("greedy.token")
    token = greedy.csrf()
    text = "apiVersion: kubeflow.org/v1alpha1\nkind: TFJob\nx:\n" + "- {}\n" * 19_000
    body = urlencode({"do": "read", "kind": "TFJob", "yaml": text, "csrf_token": token}).encode()
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    ended: list[int] = []
    senders = [
        threading.Thread(target=lambda: ended.append(greedy.send("POST", "/new", body, form)[0]), daemon=True)
        for _ in range(16)
    ]
    for each in senders:
        each.start()
    assert other.get("/new")[0] == 200
    was_first = len(ended) < 16
    for each in senders:
        each.join(60)
    assert was_first
    assert set(ended) <= {200, 429}
    assert ended.count(200) >= 1


@pytest.mark.parametrize(
    "original",
    [
        "tfjob/ns/..",
        "tfjob/ns/x%2Flog",
        "tfjob/ns/%252e",
        "tfjob/ns/a..b",
        "tfjob/ns/a.-b",
        "tfjob/a.b/x",
        f"tfjob/ns/{'a' * 254}",
    ],
)
def test_no_text_of_a_clone_reaches_a_path_of_the_api_server(shared_site: Site, original: str) -> None:
    status, page = shared_site.person("viewer.token").get(f"/new?from={original}")
    assert (status, "does not name a job" in page) == (400, True)


@pytest.mark.parametrize(
    "name", ["a", "a.b-c", "a..b", "a.-b", "-a", "a.", "A", "a" * 253, "a" * 254, "a." * 50_000 + "-"]
)
def test_a_page_has_the_names_that_the_api_server_has(name: str) -> None:
    pattern, _, _ = compile_path("/jobs/{name:name}/{action}")
    match = pattern.match(f"/jobs/{name}/log")
    assert (match is not None) == (name_violation(name) == "")


def test_a_form_with_many_fields_is_refused(shared_site: Site) -> None:
    person = shared_site.person()
    status, page, _ = person.send("POST", "/login", b"a&" * 30_000)
    assert (status, "more than 50 fields" in page) == (401, True)
    assert person.send("POST", "/login", b"a" * 70_000)[0] == 413
