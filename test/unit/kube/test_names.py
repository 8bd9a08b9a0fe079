"""Names by the rules of Kubernetes."""

from __future__ import annotations

import pytest

from tfjob_controller.kube.names import image_violation


@pytest.mark.parametrize(
    "image",
    [
        "i",
        "localhost/base:latest",
        "registry.example.com:5000/team/train_it--fast.v2:1.0_RC-1",
        "[2001:db8::1]:5000/train",
        f"example/train@sha256:{'a' * 64}",
        f"example/train:1@sha256:{'a' * 64}",
        "Registry/train",
    ],
)
def test_every_reference_that_a_registry_can_have_is_accepted(image: str) -> None:
    assert image_violation(image) == ""


@pytest.mark.parametrize(
    "image",
    [
        *(
            "",
            "bad image",
            " i",
            "i ",
            "i\n",
            "Train",
            "a/Train",
            "a:",
            "a:b:c",
            "a@sha256:1",
            "-a",
            "a//b",
            "https://a/b",
        ),
        *("a" * 256, f"a:{'b' * 129}"),
    ],
)
def test_what_no_registry_can_have_is_refused(image: str) -> None:
    assert image_violation(image).startswith("must be [REGISTRY/]REPOSITORY[:TAG]")
