"""Values of arguments: names of jobs, numbers and durations."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable

import pytest

from tfjob_controller.kubectl.argumenttypes import (
    JobName,
    count_argument,
    duration_argument,
    job_argument,
    positive_argument,
)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("train", JobName("", "train")),
        ("tfj/train", JobName("tfjob", "train")),
        ("trj/a.b-c", JobName("trainjob", "a.b-c")),
        ("trainjob.kubeflow.org/train", JobName("trainjob", "train")),
    ],
)
def test_a_job_is_named_with_or_without_its_kind(text: str, meant: JobName) -> None:
    assert job_argument(text) == meant


@pytest.mark.parametrize("text", ["", "a/b/c", "Train", "../x", "x/", "x" * 254, "x\n"])
def test_what_can_be_no_job_never_becomes_a_path(text: str) -> None:
    with pytest.raises(ArgumentTypeError):
        job_argument(text)


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (duration_argument, ""),
        (duration_argument, "-1"),
        (duration_argument, "5 m"),
        (count_argument, "-1"),
        (count_argument, "²"),
        (count_argument, "9" * 20),
        (positive_argument, "0"),
    ],
)
def test_what_is_no_number_is_refused(read: Callable[[str], object], text: str) -> None:
    with pytest.raises(ArgumentTypeError):
        read(text)
