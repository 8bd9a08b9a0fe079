"""Applying the kinds, with a kubectl that stumbles over a CRD in its first moments as the real one does."""

from __future__ import annotations

from pathlib import Path

import pytest

from demo.kubectl import Kubectl, KubectlError, apply_crds

NULL = "error: .status.conditions accessor error: <nil> is of the type <nil>, expected []interface{}"


def kubectl(folder: Path, stumbles: int) -> Kubectl:
    """One that fails so many waits."""
    left = folder / "left"
    left.write_text("x" * stumbles)
    binary = folder / "kubectl"
    stumble = f"[ -s {left} ] && truncate -s -1 {left} && echo '{NULL}' >&2 && exit 1"
    binary.write_text(f'#!/bin/sh\ncase "$*" in *wait*) {stumble}; exit 0 ;; *) echo applied ;; esac\n')
    binary.chmod(0o755)
    return Kubectl(binary, folder / "kubeconfig", "default")


def test_a_crd_without_conditions_yet_is_waited_for(tmp_path: Path) -> None:
    assert apply_crds(kubectl(tmp_path, stumbles=2), tmp_path) == "applied\n"


def test_a_crd_that_is_never_established_is_reported_with_kubectls_message(tmp_path: Path) -> None:
    with pytest.raises(KubectlError, match="conditions accessor error"):
        apply_crds(kubectl(tmp_path, stumbles=9), tmp_path, limit_seconds=0)
