"""What MPI adds to pods, and the script that waits for the nodes, run as it is with a stand-in for ssh."""

from __future__ import annotations

import copy
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from helpers.poll import eventually
from helpers.trainsettings import setting_of
from tfjob_controller.jobs.frameworks import mpi
from tfjob_controller.jobs.frameworks.base import LAUNCHER, NODE

SETTING = setting_of(2)


def pod(role: str, **container: Any) -> dict[str, Any]:
    return {"containers": [{"name": role, "image": "localhost/mpi", **container}]}


def equipped(role: str, pod_spec: Mapping[str, Any]) -> dict[str, Any]:
    return mpi.FRAMEWORK.equip(SETTING, role, pod_spec, config_map="the-map", secret="the-secret")


@pytest.mark.parametrize("role", [NODE, LAUNCHER])
def test_keys_and_files_are_mounted(role: str) -> None:
    spec = equipped(role, pod(role))
    assert spec["volumes"] == [
        {
            "name": "mpi-ssh-auth",
            "projected": {
                "defaultMode": 0o644,
                "sources": [
                    {
                        "secret": {
                            "name": "the-secret",
                            "items": [
                                {"key": "ssh-privatekey", "path": "id_rsa", "mode": 0o600},
                                {"key": "ssh-publickey", "path": "id_rsa.pub"},
                                {"key": "ssh-publickey", "path": "authorized_keys"},
                                {"key": "ssh-knownhosts", "path": "known_hosts"},
                            ],
                        }
                    },
                    {"configMap": {"name": "the-map", "items": [{"key": "ssh_config", "path": "config"}]}},
                ],
            },
        },
        {"name": "mpi-config", "configMap": {"name": "the-map"}},
    ]
    assert spec["containers"][0]["volumeMounts"] == [
        {"name": "mpi-ssh-auth", "mountPath": "/root/.ssh", "readOnly": True},
        {"name": "mpi-config", "mountPath": "/etc/mpi", "readOnly": True},
    ]


def test_every_file_that_is_mounted_or_run_is_there() -> None:
    files = set(mpi.FRAMEWORK.files(SETTING))
    said = str([equipped(role, pod(role)) for role in (NODE, LAUNCHER)])
    assert set(re.findall(r"/etc/mpi/([\w.-]+)", said)) | {"hostfile", "ssh_config", "with-env.sh"} == files
    assert "/etc/mpi/with-env.sh" in mpi.FRAMEWORK.files(SETTING)["sshd_config"]


def test_host_keys_are_checked_against_the_jobs_own_key() -> None:
    lines = [line.split() for line in mpi.FRAMEWORK.files(SETTING)["ssh_config"].splitlines()]
    assert ["StrictHostKeyChecking", "yes"] in lines
    assert "UserKnownHostsFile" not in str(lines)  # the default is ~/.ssh/known_hosts


def test_a_node_runs_sshd_if_it_has_nothing_else_to_do() -> None:
    command = equipped(NODE, pod(NODE))["containers"][0]["command"]
    assert command[:2] == ["sh", "-c"]
    assert "/usr/sbin/sshd" in command[2]


@pytest.mark.parametrize("own", [{"command": ["/start"]}, {"args": ["serve"]}], ids=["command", "arguments"])
def test_a_nodes_own_command_stays(own: dict[str, list[str]]) -> None:
    container = equipped(NODE, pod(NODE, **own))["containers"][0]
    assert {key: container.get(key) for key in ("command", "args") if key in container} == own


def test_the_launcher_waits_in_its_own_image_after_all_else() -> None:
    resources = {"limits": {"cpu": "1"}}
    spec = {"initContainers": [{"name": "first"}], **pod(LAUNCHER, resources=resources, command=["mpirun", "./pi"])}
    launcher = equipped(LAUNCHER, spec)
    assert [each["name"] for each in launcher["initContainers"]] == ["first", "await-nodes"]
    waits = launcher["initContainers"][1]
    assert waits["image"] == "localhost/mpi"
    assert waits["resources"] == resources
    assert waits["command"] == ["sh", "/etc/mpi/await-nodes.sh"]
    assert waits["volumeMounts"] == launcher["containers"][0]["volumeMounts"]
    assert launcher["containers"][0]["command"] == ["mpirun", "./pi"]
    assert "initContainers" not in equipped(NODE, pod(NODE))


@pytest.mark.parametrize("role", [NODE, LAUNCHER])
def test_a_pod_that_mounts_the_keys_elsewhere_has_them_there(role: str) -> None:
    own = [{"name": "mpi-ssh-auth", "mountPath": "/home/mpiuser/.ssh"}, {"name": "data", "mountPath": "/data"}]
    spec = equipped(role, pod(role, volumeMounts=own))
    assert [each["mountPath"] for each in spec["containers"][0]["volumeMounts"]] == [
        "/home/mpiuser/.ssh",
        "/data",
        "/etc/mpi",
    ]
    if role == NODE:
        assert "-h /home/mpiuser/.ssh/id_rsa" in spec["containers"][0]["command"][2]
    else:
        paths = [each["mountPath"] for each in spec["initContainers"][0]["volumeMounts"]]
        assert paths == ["/home/mpiuser/.ssh", "/etc/mpi"]


def test_what_the_pod_has_already_stays() -> None:
    own = {
        "volumes": [{"name": "mpi-config", "emptyDir": {}}, {"name": "data", "emptyDir": {}}],
        **pod(NODE, volumeMounts=[{"name": "keys-of-mine", "mountPath": "/root/.ssh"}]),
    }
    spec = equipped(NODE, own)
    assert spec["volumes"][:2] == own["volumes"]
    assert [each["name"] for each in spec["volumes"]] == ["mpi-config", "data", "mpi-ssh-auth"]
    assert [each["name"] for each in spec["containers"][0]["volumeMounts"]] == ["keys-of-mine", "mpi-config"]


@pytest.mark.parametrize(
    "others",
    [
        pytest.param({}, id="nothing else"),
        pytest.param({"containers": None, "volumes": None, "initContainers": None}, id="nulls"),
        pytest.param({"containers": [{"name": "sidecar"}], "hostNetwork": True}, id="no container of the role"),
    ],
)
def test_an_odd_pod_is_not_changed_in_place(others: dict[str, Any]) -> None:
    for role in (NODE, LAUNCHER):
        spec = {**pod(role, volumeMounts=None, command=[]), **others}
        before = copy.deepcopy(spec)
        assert equipped(role, spec).get("hostNetwork") == before.get("hostNetwork")
        assert spec == before


def test_other_steps_of_the_job_have_no_keys() -> None:
    spec = pod("dataset-initializer")
    assert equipped("dataset-initializer", spec) == spec


# Variables


@pytest.mark.parametrize("shell", [None, "/bin/bash"])
def test_a_program_started_by_ssh_has_the_variables_of_the_nodes_container(shell: str | None, tmp_path: Path) -> None:
    file, sshd = tmp_path / "env", tmp_path / "sshd"
    sshd.write_text("#!/bin/sh\n")
    sshd.chmod(0o755)
    odd = "two words, 'quotes', \"more\", $HOME, `id`\nand a line"
    start = equipped(NODE, pod(NODE))["containers"][0]["command"][2].replace("/dev/shm/.mpi-env", str(file))
    node = {"PATH": f"{tmp_path}:/usr/bin:/bin", "ODD": odd, "HOME": "/of/the/node"}
    subprocess.run(["sh", "-c", start], env=node, check=True)
    assert file.stat().st_mode & 0o777 == 0o600
    script = mpi.FRAMEWORK.files(SETTING)["with-env.sh"].replace("/dev/shm/.mpi-env", str(file))
    came = {"SSH_ORIGINAL_COMMAND": 'printf "%s|%s|%s" "$ODD" "$PATH" "$PWD"; exit 3'} | (
        {"SHELL": shell} if shell else {}
    )
    ran = subprocess.run(["/bin/sh", "-c", script], env=came, cwd=tmp_path, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (3, "")
    assert ran.stdout == f"{odd}|{node['PATH']}|{tmp_path}"


def test_without_a_file_of_variables_a_command_runs(tmp_path: Path) -> None:
    script = mpi.FRAMEWORK.files(SETTING)["with-env.sh"].replace("/dev/shm/.mpi-env", str(tmp_path / "none"))
    ran = subprocess.run(["/bin/sh", "-c", script], env={"SSH_ORIGINAL_COMMAND": "exit 4"}, cwd=tmp_path)
    assert ran.returncode == 4


# Keys


def test_each_secret_is_a_new_key_pair_that_openssh_reads(tmp_path: Path) -> None:
    make = mpi.FRAMEWORK.secret(SETTING)
    assert make is not None
    first, second = make(), make()
    assert set(first) == {"ssh-privatekey", "ssh-publickey", "ssh-knownhosts"}
    assert first["ssh-knownhosts"] == b"* " + first["ssh-publickey"]
    assert first != second
    assert first["ssh-privatekey"].startswith(b"-----BEGIN EC PRIVATE KEY-----\n")
    assert first["ssh-publickey"].startswith(b"ecdsa-sha2-nistp521 ")
    if keygen := shutil.which("ssh-keygen"):
        private = tmp_path / "id_rsa"
        private.write_bytes(first["ssh-privatekey"])
        private.chmod(0o600)
        public = subprocess.run([keygen, "-y", "-f", private], check=True, capture_output=True).stdout
        assert public.split() == first["ssh-publickey"].split()


def test_a_controller_without_mpi_jobs_never_loads_the_library_of_keys() -> None:
    program = (
        "import sys; from tfjob_controller.jobs.frameworks.registry import frameworks\n"
        "frameworks()['mpi'].secret(None); assert 'cryptography' not in sys.modules\n"
        "frameworks()['mpi'].secret(None)(); assert 'cryptography' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


# The script that waits


Launch = Callable[[str, Sequence[str]], "subprocess.Popen[str]"]


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    """Starts the script of a job with `hosts`, where `ssh` is a shell program that finds its host in $host."""

    def start(ssh: str, hosts: Sequence[str]) -> subprocess.Popen[str]:
        program = tmp_path / "ssh"
        program.write_text(f'#!/bin/sh\nhost=$3\necho "$host" >>{tmp_path}/calls\n{ssh}\n')
        program.chmod(0o755)
        hostfile = tmp_path / "hostfile"
        hostfile.write_text("".join(f"{host} slots=1\n" for host in hosts))
        script = mpi.FRAMEWORK.files(SETTING)["await-nodes.sh"]
        script = script.replace("/etc/mpi/hostfile", str(hostfile)).replace("sleep 1", "sleep 0.02")
        environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        return subprocess.Popen(
            ["sh", "-c", script], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    return start


def test_the_wait_ends_when_every_node_has_accepted_a_connection(launch: Launch, tmp_path: Path) -> None:
    hosts = [f"node-{index}" for index in range(37)]
    with launch("exit 0", hosts) as waiting:
        output, _ = waiting.communicate(timeout=300)
    assert (waiting.returncode, output) == (0, "nodes that answer: 37\n")
    assert sorted((tmp_path / "calls").read_text().split()) == sorted(hosts)


def test_it_tries_again_and_says_once_what_it_waits_for(launch: Launch, tmp_path: Path) -> None:
    count = f"wc -l <{tmp_path}/calls"
    ssh = f'if [ $({count}) -gt 5 ]; then exit 0; fi; echo "Connection refused" >&2; exit 255'
    with launch(ssh, ["node-0"]) as waiting:
        output, _ = waiting.communicate(timeout=300)
    assert waiting.returncode == 0
    assert output == "waiting for node-0: Connection refused\nnodes that answer: 1\n"


def test_a_node_that_refuses_the_key_ends_it(launch: Launch) -> None:
    ssh = 'if [ "$host" = node-1 ]; then echo "Permission denied (publickey)." >&2; exit 255; fi'
    with launch(ssh, ["node-0", "node-1", "node-2"]) as waiting:
        output, _ = waiting.communicate(timeout=300)
    assert (waiting.returncode, output) == (1, "node-1 refuses the launcher: Permission denied (publickey).\n")


def test_a_pod_that_is_deleted_does_not_wait_on(launch: Launch, tmp_path: Path) -> None:
    with launch("exit 255", ["node-0"]) as waiting:
        eventually(lambda: (tmp_path / "calls").exists())
        waiting.send_signal(signal.SIGTERM)
        assert waiting.wait(timeout=300) == 143
        # As in a container, whose first process takes all others along; here they are orphans.
        (tmp_path / "ssh").write_text("#!/bin/sh\nexit 0\n")
