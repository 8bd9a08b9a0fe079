"""A real API server accepts every object in the README and the docs; no YAML block is left out."""

from __future__ import annotations

import pytest
import yaml

from helpers.docsyaml import CONFIG, OBJECT, PART, Document, documents
from helpers.kubectl import MANIFESTS, Kubectl
from tfjob_controller.api.controllerconfig import parse_controller_config

ALL = documents()


def those(what: str) -> list[Document]:
    return [each for each in ALL if each.what == what]


def place(document: Document) -> str:
    return document.place


@pytest.mark.cluster
@pytest.mark.parametrize("shown", those(OBJECT), ids=place)
def test_an_object_that_a_page_shows_is_accepted(kubectl: Kubectl, shown: Document) -> None:
    kubectl.must("apply", "--dry-run=server", "--validate=strict", "-f", "-", manifest=shown.content)


@pytest.mark.cluster
@pytest.mark.parametrize("shown", those(PART), ids=place)
def test_a_part_of_a_job_that_a_page_shows_is_accepted_in_a_job(kubectl: Kubectl, shown: Document) -> None:
    sample = (MANIFESTS / "samples" / "example-job.yaml").read_text("utf-8")
    (job,) = [each for each in yaml.safe_load_all(sample) if each["kind"] == "TFJob"]
    job["spec"] |= shown.content["spec"]
    kubectl.must("apply", "--dry-run=server", "--validate=strict", "-f", "-", manifest=job)


@pytest.mark.parametrize("shown", those(CONFIG), ids=place)
def test_a_config_file_that_a_page_shows_can_be_read(shown: Document) -> None:
    parse_controller_config(yaml.safe_dump(shown.content))


def test_of_all_yaml_that_a_page_shows_it_is_known_what_it_is() -> None:
    assert [each.place for each in ALL if not each.what] == [], (
        "say in helpers/docsyaml.py what it is, and who tries it"
    )


def test_each_kind_of_yaml_is_found() -> None:
    pages = {each.page for each in those(OBJECT)}
    assert pages >= {"README.md", "docs/trainjob.md", "docs/trainjob-migration.md", "docs/trainjob-frameworks.md"}
    assert those(PART)
    assert those(CONFIG)
