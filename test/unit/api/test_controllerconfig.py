"""The rules of api/controllerconfig.py: a file that is wrong in any way stops the start with one clear line."""

import pytest

from tfjob_controller.api.controllerconfig import (
    DEFAULT_INITIALIZER_IMAGE,
    DEFAULT_TF_IMAGE,
    Accelerator,
    ConfigError,
    ControllerConfig,
    EnvVar,
    HostVolume,
    parse_controller_config,
)

FULL = """
tfImage: localhost/tensorflow
initializerImage: localhost/tfjob-initializer
accelerators:
  nvidia.com/gpu:
    volumes:
    - {name: lib, hostPath: /opt/nvidia/lib64, mountPath: /usr/local/nvidia/lib64}
    envVars:
    - {name: LD_LIBRARY_PATH, value: /usr/local/nvidia/lib64}
  alpha.kubernetes.io/nvidia-gpu: {}
"""


def test_the_whole_file_is_read() -> None:
    assert parse_controller_config(FULL) == ControllerConfig(
        "localhost/tensorflow",
        "localhost/tfjob-initializer",
        {
            "nvidia.com/gpu": Accelerator(
                (HostVolume("lib", "/opt/nvidia/lib64", "/usr/local/nvidia/lib64"),),
                (EnvVar("LD_LIBRARY_PATH", "/usr/local/nvidia/lib64"),),
            ),
            "alpha.kubernetes.io/nvidia-gpu": Accelerator(),
        },
    )


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "accelerators: {}"])
def test_what_is_not_said_has_a_default(text: str) -> None:
    assert parse_controller_config(text) == ControllerConfig(DEFAULT_TF_IMAGE, DEFAULT_INITIALIZER_IMAGE, {})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("tfimage: x", "unknown key tfimage"),
        ("tfImage: 3", "tfImage: expected str, got int"),
        ("accelerators: {gpu: }", "accelerators[gpu]: expected object, got null"),
        ("accelerators: {gpu: {volume: []}}", "accelerators[gpu]: unknown key volume"),
        ("accelerators: {gpu: {volumes: [{name: a}]}}", "accelerators[gpu].volumes[0]: missing key hostPath"),
        (
            "accelerators: {gpu: {volumes: [{name: a, hostPath: /a, mountPath: /b, readOnly: true}]}}",
            "accelerators[gpu].volumes[0]: unknown key readOnly",
        ),
        (
            "accelerators: {nvidia.com/gpu: {envVars: [{name: A, value: b}, {name: C, value: 1}]}}",
            "accelerators[nvidia.com/gpu].envVars[1].value: expected str, got int",
        ),
        ("- tfImage", "expected object, got array"),
        ("tfImage: [", "no YAML: while parsing a flow node"),
    ],
)
def test_anything_wrong_is_one_line_that_names_file_and_key(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_controller_config(text, "/etc/tfjob/config.yaml")
    assert str(caught.value).startswith(f"/etc/tfjob/config.yaml: {problem}")
    assert "\n" not in str(caught.value)
