"""The jobs that a browser names for one change: few, and with valid names."""

from __future__ import annotations

import json

import pytest

from helpers.answering import Answering, Request
from helpers.fakeclock import FakeClock
from tfjob_controller.client.errors import ClientError
from tfjob_controller.dashboard.pages.jobchanges import MAX_JOBS, MAX_SECONDS, ChosenJob, chosen_jobs, refusals
from tfjob_controller.dashboard.users import User
from tfjob_controller.kube.errors import NO_RESPONSE, ApiError


def test_each_line_names_a_job_and_counts_once() -> None:
    jobs = chosen_jobs("ns/tfjob/a/u1\nns/pytorchjob/b.c/u2\r\nns/tfjob/a/u1\n")
    assert jobs == [ChosenJob("ns", "tfjob", "a", "u1"), ChosenJob("ns", "pytorchjob", "b.c", "u2")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "from 1 to 100 jobs, not 0"),
        ("\n".join(f"ns/tfjob/a{index}/u" for index in range(MAX_JOBS + 1)), "from 1 to 100 jobs, not 101"),
        ("ns/tfjob/a", "not NAMESPACE/KIND/NAME/UID"),
        ("ns/tfjob/a/u/x", "not NAMESPACE/KIND/NAME/UID"),
        ("../tfjob/a/u/x", "not NAMESPACE/KIND/NAME/UID"),
        ("n.s/tfjob/a/u", "'tfjob/n.s/a' does not name a job: its namespace must be"),
        ("ns/tfjob/%2e%2e/u", "its name must be"),
        ("/tfjob/a/u", "its namespace must be"),
        ("ns/tfjob//u", "its name must be"),
        ("ns/secret/a/u", "unknown kind 'secret'"),
    ],
)
def test_other_texts_are_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(ClientError, match=message) as caught:
        chosen_jobs(text)
    assert "\n" not in str(caught.value)


class Jobs(Answering):
    """Jobs of any name. Requests of those named `away` get no response, those of `forbidden` are refused."""

    def answer(self, request: Request) -> bytes:
        name = request.path.rpartition("/")[2]
        if name == "away":
            raise ApiError(0, NO_RESPONSE, "it is away")
        if name == "forbidden":
            raise ApiError(403, "Forbidden", "no")
        return json.dumps({"metadata": {"name": name, "namespace": "ns", "uid": "u"}}).encode()


def chosen(*names: str) -> list[ChosenJob]:
    return [ChosenJob("ns", "trainjob", name, "u") for name in names]


def test_after_an_error_that_may_pass_the_other_jobs_are_not_tried() -> None:
    api, changed = Jobs(), list[str]()
    user = User("me", api, "ns", "there", FakeClock())
    jobs = chosen("a", "forbidden", "b", "away", "c", "d")
    messages = {
        refusal.job.name: refusal.message for refusal in refusals(user, lambda job: changed.append(job.name), jobs)
    }
    assert changed == ["a", "b"]
    assert list(messages) == ["forbidden", "away", "c", "d"]
    assert [name for name, message in messages.items() if message.startswith("not tried: ")] == ["c", "d"]
    assert messages["c"] == f"not tried: {messages['away']}"


def test_a_change_of_many_jobs_ends_after_half_a_minute() -> None:
    clock, changed = FakeClock(), list[str]()
    user = User("me", Jobs(), "ns", "there", clock)

    def change(name: str) -> None:
        changed.append(name)
        clock.advance(MAX_SECONDS / 2)

    refused = list(refusals(user, lambda job: change(job.name), chosen("a", "b", "c", "d"), clock.monotonic))
    assert changed == ["a", "b"]
    assert [(refusal.job.name, refusal.message) for refusal in refused] == [
        (name, "not tried: the jobs before it took 30 seconds") for name in "cd"
    ]
