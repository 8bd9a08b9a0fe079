"""YAML that was made to hurt, in every place where YAML is read: one line, no traceback, no room for a bomb.

That is the controller's config file and kubeconfigs. Jobs come as JSON from the API server, and `submit` reads no file.
"""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from tfjob_controller.api.controllerconfig import ConfigError, parse_controller_config
from tfjob_controller.kube.config.credentials import KubeconfigError as KubeconfigError
from tfjob_controller.kube.config.kubeconfig import load_config

# Each list holds the one before nine times: written out it would be 9 to the power of 20.
BILLION_LAUGHS = "a0: &a0 [lol]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]\n" for level in range(1, 20)
)
LEVELS = [
    pytest.param(f"tfImage: {'[' * 2_000}", id="many levels"),
    pytest.param("- " * 2_000, id="many levels without brackets"),
]
BOMBS = [
    pytest.param(BILLION_LAUGHS, id="a billion laughs"),
    pytest.param(f"accelerators:\n  x:\n    volumes: *a19\n{BILLION_LAUGHS}", id="an alias before its anchor"),
    pytest.param("accelerators: &a {x: *a}", id="a mapping that holds itself"),
    pytest.param("&a [*a]", id="a list that holds itself"),
    pytest.param(f"tfImage: {'[' * 700}{']' * 700}", id="many levels"),
    pytest.param(f"tfImage: {'9' * 10_000}", id="a number of 10,000 digits"),
    pytest.param("tfImage: 2001-13-01", id="a date that is none"),
    pytest.param("tfImage: !!python/object/apply:os.system [id]", id="a tag that calls a function"),
    pytest.param("tfImage: !!python/name:os.environ", id="a tag that names one"),
    pytest.param("tfImage: a\x1b[2J\x00", id="control characters"),
    pytest.param("? [a, b]\n: c", id="a key that is a list"),
]


@pytest.mark.parametrize("text", [*BOMBS, *LEVELS])
def test_a_controllers_config_ends_with_one_line(text: str) -> None:
    tracemalloc.start()
    with pytest.raises(ConfigError) as refused:
        parse_controller_config(text, "config.yaml")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    words = str(refused.value)
    assert words.startswith("config.yaml: ")
    assert words.isprintable()
    assert len(words) < 1_000
    assert peak < 50_000_000


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("tfImage: a\ntfImage: b", id="at the top"),
        pytest.param("accelerators: {gpu: {volumes: []}, gpu: {}}", id="an accelerator"),
        pytest.param("accelerators: {gpu: {envVars: [{name: A, name: B, value: C}]}}", id="a variable"),
    ],
)
def test_a_key_that_is_there_twice_is_refused_and_the_last_does_not_win(text: str) -> None:
    with pytest.raises(ConfigError, match=r"the key .* occurs twice"):
        parse_controller_config(text)


def test_small_anchors_and_merges_are_accepted() -> None:
    text = "accelerators:\n  a: &a {volumes: [{name: lib, hostPath: /lib, mountPath: /lib}]}\n  b: {<<: *a}\n  c: *a\n"
    found = parse_controller_config(text).accelerators
    assert found["a"] == found["b"] == found["c"]


@pytest.mark.parametrize("text", BOMBS)
def test_a_kubeconfig_ends_with_one_line_that_shows_nothing_of_it(text: str, tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(f"users: [{{name: u, user: {{token: s3cr3t}}}}]\n{text}\n")
    with pytest.raises(KubeconfigError) as refused:
        load_config(str(path))
    words = str(refused.value)
    assert str(path) in words
    assert words.isprintable()
    assert "s3cr3t" not in words
