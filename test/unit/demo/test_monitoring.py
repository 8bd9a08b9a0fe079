"""The pod of Prometheus has the shipped files, and the account that the shipped rights are given to."""

from __future__ import annotations

from pathlib import Path

import yaml

from demo.monitoring import objects
from helpers.monitoringfiles import FILES

FOLDER = FILES / "prometheus"
SHIPPED = {name: yaml.safe_load((FOLDER / name).read_text()) for name in ("prometheus.yaml", "rules.yaml")}


def test_only_the_intervals_are_not_those_that_are_shipped() -> None:
    (data,) = [each["data"] for each in objects(Path("/bin/prometheus")) if each["kind"] == "ConfigMap"]
    inside = {name: yaml.safe_load(text) for name, text in data.items()}
    assert set(inside["prometheus.yaml"].pop("global").values()) == {"2s"}
    shipped = {name: {key: value for key, value in each.items() if key != "global"} for name, each in SHIPPED.items()}
    assert inside == shipped


def test_the_rights_are_those_of_the_pod_s_account() -> None:
    role, binding = yaml.safe_load_all((FOLDER / "rbac.yaml").read_text())
    (pod,) = [each for each in objects(Path("/bin/prometheus")) if each["kind"] == "Pod"]
    (subject,) = binding["subjects"]
    assert (subject["name"], subject["namespace"]) == (pod["spec"]["serviceAccountName"], pod["metadata"]["namespace"])
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    namespaces = SHIPPED["prometheus.yaml"]["scrape_configs"][0]["kubernetes_sd_configs"][0]["namespaces"]["names"]
    assert namespaces == [role["metadata"]["namespace"]]
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]
