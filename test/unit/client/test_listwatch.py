"""A job's changes, whatever becomes of the connection: a scripted server, in the test's own thread."""

from __future__ import annotations

import json
from itertools import islice

import pytest

from helpers.manifests import master, tfjob
from helpers.scripted import Answer, PatientClock, ScriptedRequester
from helpers.things import bookmark, error_line
from tfjob_controller.client.errors import ClientError, JobDeletedError, JobFailedError, WaitTimeoutError
from tfjob_controller.client.job import Job
from tfjob_controller.client.kinds import Snapshot, snapshot_decoder
from tfjob_controller.client.listwatch import watch_job
from tfjob_controller.client.reader import Connection
from tfjob_controller.kinds.tfjob.clientkind import CLIENT_KIND as TFJOB
from tfjob_controller.kube.errors import ApiError

END = bookmark(5, ends_list=True)
BROKEN = ApiError(0, "ConnectionBroken", "the stream broke off")
NO_STREAMING = ApiError(422, "Invalid", "sendInitialEvents is forbidden for watch")


def body(phase: str, version: int = 5, uid: str = "u1", **status: object) -> bytes:
    meta = {"name": "a", "namespace": "ns", "uid": uid, "resourceVersion": str(version)}
    return json.dumps({**tfjob(master()), "metadata": meta, "status": {"phase": phase, **status}}).encode()


def line(kind: str, phase: str, version: int = 5, **more: str) -> bytes:
    return b'{"type": "%s", "object": %s}' % (kind.encode(), body(phase, version, **more))


def listed(*bodies: bytes) -> bytes:
    return b'{"metadata": {"resourceVersion": "5"}, "items": [%s]}' % b",".join(bodies)


def test_a_server_without_streaming_lists_is_listed_at_once() -> None:
    clock, requester = PatientClock(), ScriptedRequester(NO_STREAMING, listed(body("A")))
    seen = watch_job(Connection(requester, "ns", "there", clock=clock), TFJOB, "ns", "a", deadline=1e6)
    assert [each and each.phase for each in islice(seen, 1)] == ["A"]
    assert clock.slept == []


def played(*answers: Answer, count: int = 100) -> tuple[list[str | None], ScriptedRequester]:
    """The first phases that a watch tells, None for a job that is not there."""
    requester = ScriptedRequester(*answers)
    seen = watch_job(Connection(requester, "ns", "there", clock=PatientClock()), TFJOB, "ns", "a", deadline=1e6)
    return [each and each.phase for each in islice(seen, count)], requester


def test_the_present_state_comes_first_then_each_change_until_it_goes() -> None:
    seen, requester = played(
        [line("ADDED", "Creating"), END, line("MODIFIED", "Running", 6), line("DELETED", "Running", 7)], count=3
    )
    assert seen == ["Creating", "Running", None]
    assert requester.asked[0]["fieldSelector"] == "metadata.name=a"
    assert requester.paths == ["/apis/kubeflow.org/v1alpha1/namespaces/ns/tfjobs"]


def test_a_job_that_does_not_exist_is_none() -> None:
    assert played([END], count=1)[0] == [None]


@pytest.mark.parametrize(
    ("answers", "versions"),
    [
        pytest.param([[line("ADDED", "A"), END, BROKEN], [line("MODIFIED", "B", 8)]], ["list", "5"], id="broken"),
        pytest.param([[line("ADDED", "A"), END], [line("MODIFIED", "B", 8)]], ["list", "5"], id="its time over"),
        pytest.param(
            [[line("ADDED", "A"), END], ApiError(503, "", "down"), [line("MODIFIED", "B", 8)]],
            ["list", "5", "5"],
            id="down",
        ),
        pytest.param(
            [
                [line("ADDED", "A"), END, error_line(410, "Expired")],
                [line("ADDED", "B", 8), bookmark(9, ends_list=True)],
            ],
            ["list", "list 5"],
            id="compacted away",
        ),
        pytest.param(
            [NO_STREAMING, listed(body("A")), [line("MODIFIED", "B", 8)]], ["list", "0", "5"], id="old server"
        ),
    ],
)
def test_what_ends_a_watch_does_not_end_the_waiting(answers: list[Answer], versions: list[str]) -> None:
    seen, requester = played(*answers, count=2)
    assert seen == ["A", "B"]
    lists = ["list" if "sendInitialEvents" in query else "" for query in requester.asked]
    asked = [query.get("resourceVersion", "") for query in requester.asked]
    assert [f"{kind} {version}".strip() for kind, version in zip(lists, asked, strict=True)] == versions


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(ApiError(401, "", "no"), id="not known"),
        pytest.param(ApiError(404, "", "no"), id="no such kind"),
        pytest.param(ApiError(0, "Closed", "the transport is closed"), id="closed"),
    ],
)
def test_what_no_waiting_mends_is_raised(error: ApiError) -> None:
    with pytest.raises(ApiError) as caught:
        played([line("ADDED", "A"), END], error)
    assert caught.value is error


def handle(*answers: Answer, clock: PatientClock | None = None) -> Job:
    requester = ScriptedRequester(*answers)
    seen: Snapshot = snapshot_decoder(TFJOB)(body("Creating"))
    return Job(Connection(requester, "ns", "there", clock=clock or PatientClock()), seen)


def test_a_wait_ends_in_time_though_the_server_is_away() -> None:
    clock = PatientClock()
    begin = clock.monotonic()
    with pytest.raises(WaitTimeoutError, match="ns/a did not reach Succeeded within 20 s: it is Creating"):
        handle(clock=clock).wait(timeout_seconds=20)
    assert clock.monotonic() - begin == pytest.approx(20, abs=1e-6)


def test_a_job_that_no_controller_has_seen_says_so_in_a_notebook_and_after_a_wait() -> None:
    job = handle(body(""), clock=PatientClock())
    job.refresh()
    assert "not processed by a controller yet" in job._repr_html_()
    with pytest.raises(
        WaitTimeoutError, match="did not reach Succeeded within 20 s: no controller has processed it yet"
    ):
        job.wait(timeout_seconds=20)


@pytest.mark.parametrize(("phase", "is_met"), [("Done", True), ("Running", False)])
def test_no_time_at_all_looks_once(phase: str, is_met: bool) -> None:
    job = handle(body(phase))
    if is_met:
        assert job.wait(timeout_seconds=0).phase == "Done"
        return
    with pytest.raises(WaitTimeoutError):
        job.wait(timeout_seconds=0)


@pytest.mark.parametrize("until", ["Succeeded", "Complete"])
def test_a_job_that_has_succeeded_is_one_that_ran_by_either_name(until: str) -> None:
    assert handle([line("ADDED", "Done"), END]).wait(until, 60).phase == "Done"


@pytest.mark.parametrize(
    ("lines", "error", "words"),
    [
        pytest.param([line("ADDED", "Failed")], JobFailedError, "has failed: no reason", id="failed"),
        pytest.param([], JobDeletedError, "was deleted", id="deleted"),
        pytest.param([line("ADDED", "Running", uid="u2")], JobDeletedError, "was deleted", id="a namesake"),
    ],
)
def test_a_job_that_is_over_or_gone_is_not_waited_for(lines: list[bytes], error: type[ClientError], words: str) -> None:
    with pytest.raises(error, match=words):
        handle([*lines, END]).wait(timeout_seconds=60)


def test_a_refusal_while_it_waits_is_a_sentence_with_a_remedy() -> None:
    refusal = ApiError(403, "Forbidden", 'tfjobs is forbidden: User "x" cannot watch resource "tfjobs"')
    with pytest.raises(ClientError, match=r"cannot watch .*: ask for the role `view`") as caught:
        handle(refusal).wait(timeout_seconds=60)
    assert caught.value.api_error is refusal
    assert caught.value.__suppress_context__
