"""The jobs that a browser names for one change: few, and with valid names."""

from __future__ import annotations

import pytest

from tfjob_controller.client.errors import ClientError
from tfjob_controller.dashboard.pages.jobchanges import MAX_JOBS, ChosenJob, chosen_jobs


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
        ("n.s/tfjob/a/u", "a namespace or name of 'n.s/tfjob/a/u' must be"),
        ("ns/tfjob/%2e%2e/u", "a namespace or name of"),
        ("/tfjob/a/u", "a namespace or name of"),
        ("ns/tfjob//u", "a namespace or name of"),
        ("ns/secret/a/u", "unknown kind 'secret'"),
    ],
)
def test_other_texts_are_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(ClientError, match=message) as caught:
        chosen_jobs(text)
    assert "\n" not in str(caught.value)
