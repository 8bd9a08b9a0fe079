"""Which job a text names, and texts that name none."""

from __future__ import annotations

import pytest

from tfjob_controller.client.errors import ClientError
from tfjob_controller.dashboard.jobreference import JobReference, job_reference
from tfjob_controller.dashboard.pages.compare import references_in


@pytest.mark.parametrize("kind", ["trainjob", "TrainJob", "trainjobs"])
def test_a_reference_has_one_word_for_each_kind(kind: str) -> None:
    reference = job_reference(f"{kind}/team/a.b")
    assert reference == JobReference("trainjob", "team", "a.b")
    assert str(reference) == "trainjob/team/a.b"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' does not name a job: use KIND/NAMESPACE/NAME"),
        ("tfjob/team", "use KIND/NAMESPACE/NAME"),
        ("tfjob/team/a/log", "use KIND/NAMESPACE/NAME"),
        ("tfjob/te.am/a", "its namespace must be of lower-case"),
        ("tfjob//a", "its namespace must be of lower-case"),
        ("tfjob/team/..", "its name must be of lower-case"),
        ("secret/team/a", "unknown kind 'secret'"),
        ("/team/a", "unknown kind ''"),
    ],
)
def test_other_texts_are_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(ClientError, match=message) as caught:
        job_reference(text)
    assert "\n" not in str(caught.value)


def test_a_comparison_has_each_job_once_and_keeps_what_names_none() -> None:
    texts = ["TrainJob/a/b", " trainjob/a/b ", "", "tfjobs/a/b", "nonsense", "nonsense", "x" * 500]
    assert references_in(texts) == ["trainjob/a/b", "tfjob/a/b", "nonsense", "x" * 400]
