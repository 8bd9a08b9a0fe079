"""The page of a new job for manifests that its form cannot show, and for those that only the API server may judge."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from helpers.answering import Request
from helpers.fakeclock import FakeClock
from helpers.memoryapi import MemoryApi
from tfjob_controller.dashboard.app import create_app
from tfjob_controller.dashboard.jobform import JobForm, new_manifest
from tfjob_controller.dashboard.jobtexts import texts_of, yaml_of
from tfjob_controller.dashboard.pages.login import Logins, OneTimeLink
from tfjob_controller.dashboard.users import User

HOST = "127.0.0.1:8001"
JOBS = "/apis/kubeflow.org/v2alpha1/namespaces/team/trainjobs"
_CSRF = re.compile(r'name="csrf_token" value="([^"]+)"')


class Cluster(MemoryApi):
    """Allows everything."""

    def __init__(self) -> None:
        super().__init__()
        self.put("/api/v1/namespaces", {"metadata": {"name": "team"}})

    def answer(self, request: Request) -> bytes:
        if request.path.endswith("/selfsubjectaccessreviews"):
            return b'{"status": {"allowed": true}}'
        return super().answer(request)


@pytest.fixture
def api() -> Cluster:
    return Cluster()


@pytest.fixture
def browser(api: Cluster) -> Iterator[TestClient]:
    clock = FakeClock()
    app = create_app(
        Logins(link=OneTimeLink(User("me", api, "team", "there", clock), "secret")), [HOST], clock, is_secure=False
    )
    with TestClient(app, base_url=f"http://{HOST}") as found:
        found.cookies.update(found.get("/login?token=secret", follow_redirects=False).cookies)
        yield found


def press(browser: TestClient, button: str, manifest: dict[str, Any], **changes: str) -> str:
    """Sends the form as it is read from the manifest, with changes."""
    token = _CSRF.search(browser.get("/new").text)
    assert token is not None
    form, _ = JobForm.readable(manifest)
    fields = {**texts_of(form), "yaml": yaml_of(manifest), "do": button, "csrf_token": token[1], **changes}
    headers = {"X-CSRF-Token": token[1], "HX-Request": "true", "Origin": f"http://{HOST}"}
    return browser.post("/new", data=fields, headers=headers).text


def job(**trainer: Any) -> dict[str, Any]:
    metadata = {"name": "odd", "namespace": "team"}
    return {**new_manifest("TrainJob"), "metadata": metadata, "spec": {"trainer": {"image": "a", **trainer}}}


def test_a_clone_keeps_the_fields_that_the_form_can_show(api: Cluster, browser: TestClient) -> None:
    api.put(JOBS, job(command=["a\rb"]))
    page = browser.get("/new?from=trainjob/team/odd").text
    assert 'value="odd-copy"' in page
    assert '<option value="TrainJob" selected>' in page
    assert "command has control characters" in page
    assert "Kind: is unknown" not in page


@pytest.mark.parametrize(
    "trainer",
    [
        pytest.param({"resourcesPerNode": {"requests": {"cpu": 0}}}, id="no CPU"),
        pytest.param({"resourcesPerNode": {"requests": {"memory": "500k"}}}, id="little memory"),
        pytest.param({"resourcesPerNode": {"limits": {"nvidia.com/gpu": 5000}}}, id="many GPUs"),
        pytest.param({"command": ["sh", "-c", "x" * 60_000]}, id="a long command"),
        pytest.param({"command": ["printf", "\x1b[0m"]}, id="ESC"),
    ],
)
def test_fields_that_nobody_touched_are_judged_by_the_api_server_alone(
    browser: TestClient, trainer: dict[str, Any]
) -> None:
    manifest = job(**trainer)
    assert "The API server would create trainjob team/odd." in press(browser, "check", manifest)
    assert "The form and the YAML differ" in press(browser, "check", job(), image="b")


def test_a_variable_that_is_set_twice_is_judged_by_the_kind_of_the_job(browser: TestClient) -> None:
    env = [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]
    assert "spec.trainer.env[1].name: A is listed twice" in press(browser, "check", job(env=env))


def test_a_changed_form_is_held_to_its_limits(browser: TestClient) -> None:
    assert "must be more than 0" in press(browser, "check", job(), cpu="0")
    assert "command has control characters" in press(browser, "check", job(command=["a\rb"]), image="b")


def test_reading_a_yaml_shows_what_can_be_shown_and_names_the_rest(browser: TestClient) -> None:
    page = press(browser, "read", job(command=["a\rb"]), image="", name="")
    assert 'value="odd"' in page
    assert "command has control characters" in page


def test_a_yaml_that_cannot_be_read_is_named_although_the_form_is_empty(browser: TestClient) -> None:
    page = press(browser, "check", job(), kind="", yaml="a: [")
    assert "The YAML cannot be read" in page
    assert "Kind: is unknown" not in page
