"""Manifests as text, also those that are no manifests."""

from __future__ import annotations

import pytest

from tfjob_controller.dashboard.manifesttext import text_of


def test_a_manifest_is_yaml() -> None:
    assert text_of(b'{"spec": {"suspend": true}}') == "spec:\n  suspend: true\n"


@pytest.mark.parametrize("body", [b'{"a": 1e999999}', b'{"a": "\xff"}', b"{"])
def test_what_cannot_be_decoded_is_one_line(body: bytes) -> None:
    text = text_of(body)
    assert text.startswith("# The manifest cannot be shown: ")
    assert text.count("\n") == 1
