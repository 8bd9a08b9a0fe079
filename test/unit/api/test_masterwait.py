"""The init containers of PyTorchJobs' workers: templates of administrators."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.v1bench import NAME, V1Bench
from tfjob_controller.api import masterwait
from tfjob_controller.api.controllerconfig import ConfigError
from tfjob_controller.api.masterwait import default_wait, parse_wait, read_wait
from tfjob_controller.kinds.kubeflowv1.plan import AddedContainers
from tfjob_controller.options import RunOptions, resolve

# As in training-operator's ConfigMaps.
TEMPLATE = """
- name: wait
  image: {{.InitContainerImage}}
  resources: {limits: {cpu: 100m, memory: 20Mi}}
  command: ['sh', '-c', 'for i in $(seq {{ .MaxTries }}); do nslookup {{.MasterAddr}} && exit; sleep 2; done; exit 1']
- {name: more, image: more:1, env: [{name: MASTER, value: "{{.MasterAddr}}"}, {name: TRIES, value: "{{.MaxTries}}"}]}
"""


def test_the_fields_of_a_template_are_replaced() -> None:
    wait, more = parse_wait(TEMPLATE, "registry:5000/alpine@sha256:12", 7).containers("j-master-0")
    assert (wait["name"], wait["image"]) == ("wait", "registry:5000/alpine@sha256:12")
    assert wait["command"][2] == "for i in $(seq 7); do nslookup j-master-0 && exit; sleep 2; done; exit 1"
    assert more["env"] == [{"name": "MASTER", "value": "j-master-0"}, {"name": "TRIES", "value": "7"}]


@pytest.mark.parametrize("text", ["", "[]", "# nothing"])
def test_a_template_without_containers_adds_none(text: str) -> None:
    assert parse_wait(text, "a", 1).containers("x") == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("- name: {{.Name}}", "{{.Name}} is not supported, only {{.MasterAddr}}, {{.InitContainerImage}}"),
        ("- name: {{if true}}x{{end}}", "{{if true}} is not supported"),
        ("name: wait", "must be a list of containers"),
        ("wait", "must be a list of containers"),
        ("- image: a", "[0] must be a container whose name is a DNS label"),
        ("- {name: a}\n- {name: 7}", "[1] must be a container whose name is a DNS label"),
        ("- {name: X_Y}", "[0] must be a container whose name is a DNS label"),
        ("- name: [", "no YAML: "),
        ("- name: a\n  name: b", "no YAML: the key name occurs twice"),
        ("- &a {name: a}\n- *a", "aliases (*name) are not supported"),
        (
            "- &a0 {name: a}\n" + "\n".join(f"- &a{i + 1} {{<<: [*a{i}, *a{i}]}}" for i in range(40)),
            "aliases (*name) are not supported",
        ),
        ("- {name: a, ? null : x}", "a value that no container has: "),
        ('- {name: a, image: "\\uD800"}', "a value that no container has: "),
    ],
)
def test_a_template_that_cannot_be_used_is_refused_with_one_line(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "template.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as refused:
        read_wait(str(path), "a", 1)
    message = str(refused.value)
    assert message.startswith(f"{path}: {problem}")
    assert message.isprintable()


def test_a_file_that_is_named_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such file"):
        read_wait(str(tmp_path / "absent"), "a", 1)
    with pytest.raises(ConfigError, match=f"cannot read {tmp_path}: "):
        read_wait(str(tmp_path), "a", 1)


def test_the_flags_have_the_defaults_of_training_operator(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    options: RunOptions = resolve({}, {})
    image, tries = options.pytorch_init_container_image, options.pytorch_init_container_max_tries
    path = options.pytorch_init_container_template_file
    assert (image, tries, path) == (
        masterwait.DEFAULT_IMAGE,
        masterwait.DEFAULT_MAX_TRIES,
        masterwait.DEFAULT_TEMPLATE_FILE,
    )
    assert (image, tries, path) == ("alpine:3.10", 100, "/etc/config/initContainer.yaml")
    absent = str(tmp_path / "absent")
    monkeypatch.setattr(masterwait, "DEFAULT_TEMPLATE_FILE", absent)
    assert read_wait(absent, image, tries) == default_wait()


def test_workers_get_the_containers_of_the_template_after_their_own() -> None:
    bench = V1Bench("PyTorchJob", added=AddedContainers(parse_wait(TEMPLATE, "a:1", 7)))
    bench.create({"Master": 1, "Worker": 1})
    bench.settle()
    names = [container["name"] for container in bench.pod("worker-0")["spec"]["initContainers"]]
    assert names == ["wait", "more"]
    assert f"nslookup {NAME}-master-0 " in bench.pod("worker-0")["spec"]["initContainers"][0]["command"][2]
    assert "initContainers" not in bench.pod("master-0")["spec"]


def test_a_container_of_another_kind_of_job_with_a_name_of_the_template_is_judged_by_its_exit_code() -> None:
    bench = V1Bench("TFJob", added=AddedContainers(parse_wait(TEMPLATE, "a:1", 7)))
    bench.create({"Worker": 1}, policy="ExitCode")
    bench.settle()
    bench.fails_before_training("worker-0", "wait")
    bench.settle()
    assert bench.state == "Failed"
