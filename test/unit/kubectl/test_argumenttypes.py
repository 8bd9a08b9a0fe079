"""Values of arguments: names of jobs, numbers and durations."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable

import pytest

from generate.kinds import KINDS as CRDS
from tfjob_controller.client.kinds import KINDS, OWN_KINDS
from tfjob_controller.kinds.clientkind import ClientKind
from tfjob_controller.kubectl.argumenttypes import (
    JobName,
    count_argument,
    duration_argument,
    job_argument,
    namespace_argument,
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
    ("read", "text", "words"),
    [
        (job_argument, "x" * 254, "cannot be the name of a job: it must have at most 253 characters, has 254"),
        (job_argument, "a..b", "cannot be the name of a job: it must be of lower-case letters, digits, - and . and"),
        (namespace_argument, "x" * 64, "cannot be the name of a namespace: it must have at most 63 characters, has 64"),
        (
            namespace_argument,
            "a.b",
            "cannot be the name of a namespace: it must be of lower-case letters, digits and -",
        ),
    ],
)
def test_a_name_that_the_server_would_refuse_is_refused_with_the_bound(
    read: Callable[[str], object], text: str, words: str
) -> None:
    with pytest.raises(ArgumentTypeError) as refused:
        read(text)
    assert words in str(refused.value)
    assert len(str(refused.value)) < 250


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


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.word}-{kind.resource.version}")
def test_every_kind_is_named_as_the_api_server_names_it(kind: ClientKind) -> None:
    """The names are written down without the types, because a command line is read before these are loaded."""
    short_names = [crd.short_name for crd in CRDS if crd.resource == kind.resource]
    # Upstream's CRDs have none.
    assert bool(short_names) == (kind in OWN_KINDS)
    for word in (kind.word, kind.resource.plural, *short_names, kind.resource.full_name):
        assert job_argument(f"{word}/a") == JobName(kind.word, "a")
