"""Manifests and certificates of programs of other projects that run beside the control plane."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509

from localcluster import addons, cli
from localcluster.addontable import ADDONS, Addon, Place
from localcluster.binaries import PROGRAMS
from localcluster.certificates import self_signed
from localcluster.errors import LocalClusterError
from tfjob_controller.jobs.plan.podgroupbackends import BACKENDS

KUEUE, VOLCANO, COSCHEDULING = ADDONS["kueue"], ADDONS["volcano"], ADDONS["coscheduling"]
CA = b"-----BEGIN CERTIFICATE-----"

Object = dict[str, Any]


def webhook(group: str) -> Object:
    return {
        "name": f"m{group}",
        "clientConfig": {"service": {"name": "webhook-service", "namespace": "system", "path": f"/mutate-{group}"}},
        "rules": [{"apiGroups": [group], "resources": ["jobs"]}],
    }


def place_of(addon: Addon, folder: Path) -> Place:
    probes = {program.name: port for port, program in enumerate(addon.programs, 8081)}
    return Place(folder, folder, probes, 9443, folder / "kubeconfig")


@pytest.fixture
def module(tmp_path: Path) -> Place:
    """A module with the manifests of Kueue in a small size, and a certificate."""
    (tmp_path / "tls.crt").write_bytes(CA)
    assert KUEUE.webhooks is not None
    crds = tmp_path / KUEUE.crds[0]
    crds.mkdir(parents=True)
    for plural in ("workloads", "topologies"):
        body = {"metadata": {"name": f"{plural}.kueue.x-k8s.io"}, "spec": {}}
        (crds / f"kueue.x-k8s.io_{plural}.yaml").write_text(yaml.safe_dump(body))
    file = tmp_path / KUEUE.webhooks.manifest
    file.parent.mkdir(parents=True)
    hooks = [webhook("batch"), {"clientConfig": {"service": {}}, "namespaceSelector": {}}]
    metadata = {"name": "mutating-webhook-configuration"}
    config = {"kind": "MutatingWebhookConfiguration", "metadata": metadata, "webhooks": hooks}
    file.write_text(yaml.safe_dump_all([None, {"kind": "Service", "metadata": metadata}, config]))
    return place_of(KUEUE, tmp_path)


@pytest.mark.parametrize("addon", ADDONS.values(), ids=list(ADDONS))
def test_every_addon_has_programs_of_a_pinned_module(addon: Addon) -> None:
    assert addon.programs
    for program in addon.programs:
        assert PROGRAMS[program.name].version == addon.version
        assert PROGRAMS[program.name].requirement == addon.module


def test_an_unknown_addon_is_refused_with_the_known_ones() -> None:
    with pytest.raises(LocalClusterError, match=r"no such addon: keueu \(known addons: .*kueue"):
        addons.addon("keueu")


def test_crds_that_are_converted_call_the_program_on_this_machine(module: Place) -> None:
    found = {crd["metadata"]["name"]: crd["spec"] for crd in addons.crds(KUEUE, module)}
    client = {"url": "https://127.0.0.1:9443/convert", "caBundle": base64.b64encode(CA).decode()}
    conversion = {"strategy": "Webhook", "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]}}
    assert found == {"workloads.kueue.x-k8s.io": {"conversion": conversion}, "topologies.kueue.x-k8s.io": {}}


def test_webhooks_call_this_machine_and_leave_system_namespaces_alone(module: Place) -> None:
    (config,) = addons.webhook_configurations(KUEUE, module)
    assert config["metadata"]["name"] == "kueue-mutating-webhook-configuration"
    of_jobs, of_all = config["webhooks"]
    assert of_jobs["clientConfig"]["url"] == "https://127.0.0.1:9443/mutate-batch"
    assert "kueue-system" in str(of_jobs["namespaceSelector"])
    assert of_all["clientConfig"]["url"] == "https://127.0.0.1:9443/"
    assert of_all["namespaceSelector"] == {}


def test_a_rotator_gets_a_certificate_that_is_its_own_authority(tmp_path: Path) -> None:
    place = place_of(KUEUE, tmp_path)
    self_signed(place.certificate, place.key, "/CN=kueue-ca", "IP:127.0.0.1", "DNS:webhook.system.svc")
    data = addons.certificate_secret("system", "cert", place)["data"]
    certificate = x509.load_pem_x509_certificate(base64.b64decode(data["tls.crt"]))
    certificate.verify_directly_issued_by(certificate)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    assert names.get_values_for_type(x509.DNSName) == ["webhook.system.svc"]
    assert base64.b64decode(data["ca.key"]).startswith(b"-----BEGIN RSA PRIVATE KEY-----")
    assert (data["ca.crt"], data["ca.key"]) == (data["tls.crt"], data["tls.key"])


def test_kueue_listens_on_loopback_and_takes_settings(tmp_path: Path) -> None:
    arguments = KUEUE.programs[0].command(place_of(KUEUE, tmp_path), {"manageJobsWithoutQueueName": True})
    config = yaml.safe_load((tmp_path / "config.json").read_text())
    assert f"--config={tmp_path / 'config.json'}" in arguments
    assert config["manageJobsWithoutQueueName"] is True
    assert config["health"]["healthProbeBindAddress"] == "127.0.0.1:8081"
    assert (config["webhook"]["host"], config["webhook"]["port"]) == ("127.0.0.1", 9443)


def test_volcanos_scheduler_has_its_default_configuration_and_takes_settings(tmp_path: Path) -> None:
    default = tmp_path / "installer/helm/chart/volcano/config/volcano-scheduler.conf"
    default.parent.mkdir(parents=True)
    default.write_text("actions: enqueue, allocate\ntiers: [{plugins: [{name: gang}]}]\n")
    scheduler = VOLCANO.programs[-1]
    place = place_of(VOLCANO, tmp_path)
    arguments = scheduler.command(place, {"actions": "enqueue, allocate, preempt"})
    config = yaml.safe_load((tmp_path / "scheduler.json").read_text())
    assert config == {"actions": "enqueue, allocate, preempt", "tiers": [{"plugins": [{"name": "gang"}]}]}
    assert f"--scheduler-conf={tmp_path / 'scheduler.json'}" in arguments
    assert "--healthz-address=127.0.0.1:8083" in arguments
    assert scheduler.health_address(place) == "http://127.0.0.1:8083/healthz"


def write_coscheduling_config(folder: Path) -> None:
    profile = {
        "schedulerName": "default-scheduler",
        "plugins": {"multiPoint": {"enabled": [{"name": "Coscheduling"}]}},
        "pluginConfig": [{"name": "Coscheduling", "args": {"permitWaitingTimeSeconds": 10}}],
    }
    path = folder / "manifests/coscheduling/scheduler-config.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(yaml.safe_dump({"clientConnection": {"kubeconfig": "REPLACE"}, "profiles": [profile]}))


def test_coscheduling_has_its_default_configuration_as_a_second_scheduler_and_takes_settings(tmp_path: Path) -> None:
    write_coscheduling_config(tmp_path)
    scheduler = COSCHEDULING.programs[-1]
    place = place_of(COSCHEDULING, tmp_path)
    arguments = scheduler.command(place, {"podGroupBackoffSeconds": 5})
    config = yaml.safe_load((tmp_path / "scheduler.json").read_text())
    (profile,) = config["profiles"]
    assert config["clientConnection"]["kubeconfig"] == str(tmp_path / "kubeconfig")
    assert profile["schedulerName"] == BACKENDS["coscheduling"].scheduler_name
    assert profile["plugins"] == {"multiPoint": {"enabled": [{"name": "Coscheduling"}]}}
    assert profile["pluginConfig"][0]["args"] == {"permitWaitingTimeSeconds": 10, "podGroupBackoffSeconds": 5}
    assert f"--config={tmp_path / 'scheduler.json'}" in arguments


@pytest.mark.parametrize("addon", ADDONS.values(), ids=list(ADDONS))
def test_every_program_listens_on_loopback_only(addon: Addon, tmp_path: Path) -> None:
    default = tmp_path / "installer/helm/chart/volcano/config/volcano-scheduler.conf"
    default.parent.mkdir(parents=True)
    default.write_text("actions: enqueue\n")
    write_coscheduling_config(tmp_path)
    place = place_of(addon, tmp_path)
    for program in addon.programs:
        arguments = program.command(place, {})
        addresses = [each for each in arguments if "address" in each]
        assert all("127.0.0.1" in each for each in addresses), addresses
        assert f"127.0.0.1:{place.probes_ports[program.name]}" in program.health_address(place)


def test_a_stack_with_an_unknown_addon_is_not_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert cli.main(["up", "--with", "kueue,keueu"]) == 2
    assert "no such addon: keueu" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
