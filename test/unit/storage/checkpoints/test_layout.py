"""Names in the storage, and what names tell."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tfjob_controller.storage.checkpoints.layout import (
    ManifestName,
    data_name,
    data_prefix,
    problem_of_name,
    step_of,
    upload_of,
)

ID = "0123456789abcdef0123456789abcdef"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("step_500", 500),
        ("epoch=3-step=1200.ckpt", 1200),
        ("last.pt", None),
        ("00000042", 42),
        ("x" + "9" * 30, None),
        ("9223372036854775808", None),
    ],
)
def test_the_step_is_the_last_number_of_a_name_without_its_extension(name: str, step: int | None) -> None:
    assert step_of(name) == step


def test_manifests_are_ordered_by_sequence_then_time_and_read_back() -> None:
    older = ManifestName.made(9, NOON, ID)
    newer = ManifestName.made(10, datetime(2020, 1, 1, tzinfo=UTC), ID)
    assert older < newer < ManifestName.made(10, NOON, ID)
    assert str(older) == f"manifests/000000000009-20260101T120000Z-{ID}.json"
    assert str(older) < str(newer)
    assert ManifestName.read(str(older)) == older


@pytest.mark.parametrize("text", ["manifests/x.json", f"manifests/1-20260101T120000Z-{ID}.json", "data/x", ""])
def test_another_name_is_no_manifest(text: str) -> None:
    assert ManifestName.read(text) is None


def test_names_are_quoted_and_belong_to_their_upload() -> None:
    name = data_name("a?b#c", ID, "sub/100%.bin")
    assert name == f"data/a%3Fb%23c/{ID}/sub/100%25.bin"
    assert upload_of(name) == (data_prefix("a?b#c", ID), ID)
    assert upload_of(f"data/x/{ID}") is None
    assert upload_of("manifests/x") is None


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("checkpoint-500", ""),
        (".hidden", "hidden"),
        ("a/b", "a path"),
        ("", "hidden"),
        ("a\nb", "control characters"),
        ("\udcff", "not UTF-8"),
        ("x" * 254, "more than 253"),
    ],
)
def test_names_that_cannot_be_a_checkpoints_are_explained(name: str, words: str) -> None:
    problem = problem_of_name(name)
    assert words in problem
    assert bool(problem) == bool(words)
