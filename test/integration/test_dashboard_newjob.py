"""The page of a new job in a real browser, against a real API server: form and YAML, dry run, creation, clones."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import yaml
from playwright.sync_api import Browser, Locator, Page, Route, expect

from helpers.browser import PATIENCE_MS, Visitor, visitor
from helpers.cluster import Cluster
from helpers.dashboards import HOSTILE, dashboard
from helpers.manifests import master, workers
from helpers.playground import Playground, Trial

pytestmark = pytest.mark.cluster

PRINTABLE = HOSTILE.replace("\x1b", "")
SCRIPT = "<script>alert()</script>"
TEXTS = ("Name", "Namespace", "Image", "Command", "Framework", "Nodes", "GPUs of each node", "Elastic: at least")


@pytest.fixture
def address(control_plane: Cluster, playground: Playground) -> Iterator[str]:
    with dashboard(control_plane.kubeconfig, "-n", playground.jobs.namespace) as address:
        yield address


@pytest.fixture
def guest(browser: Browser, address: str) -> Iterator[Visitor]:
    """A browser on the page of a new job; its console must stay without errors."""
    with visitor(browser) as guest:
        guest.page.goto(address)
        guest.page.get_by_role("link", name="New job").click()
        expect(guest.page.get_by_role("heading", name="New job")).to_be_visible()
        yield guest
        assert guest.errors == []


def field(page: Page, label: str) -> Locator:
    return page.get_by_label(label, exact=True)


def manifest(page: Page) -> Locator:
    return field(page, "Manifest")


def fill(page: Page, label: str, text: str) -> None:
    """Fills a field and leaves it, as a person does."""
    field(page, label).fill(text)
    field(page, label).blur()


def press(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def expect_problem(page: Page, label: str, text: str) -> None:
    """The field is marked as wrong, and the text that describes it says why."""
    expect(field(page, label)).to_have_attribute("aria-invalid", "true")
    described = field(page, label).get_attribute("aria-describedby") or ""
    assert "problem-" in described
    expect(page.locator(f"#{described.split()[-1]}")).to_contain_text(text)


def test_the_form_writes_the_yaml_and_the_yaml_the_form(guest: Visitor) -> None:
    page = guest.page
    fill(page, "Image", "example/train:1")
    expect(manifest(page)).to_have_value(re.compile("image: example/train:1"))
    fill(page, "Command", "python 'my train.py'")
    expect(manifest(page)).to_have_value(re.compile("- my train.py"))
    text = manifest(page).input_value()
    fill(page, "Manifest", f"{text}  maxRestarts: 7\n".replace("numNodes: 1", "numNodes: 6"))
    expect(field(page, "Nodes")).to_have_value("6")
    fill(page, "GPUs of each node", "2")
    expect(manifest(page)).to_have_value(re.compile("nvidia.com/gpu: 2"))
    found = yaml.safe_load(manifest(page).input_value())
    assert (found["spec"]["maxRestarts"], found["spec"]["numNodes"]) == (7, 6)
    field(page, "Kind").select_option("TFJob")
    expect(manifest(page)).to_have_value(re.compile("tfReplicaType: WORKER"))
    expect(page.get_by_label("Workers", exact=True)).to_have_value("6")


def test_a_fast_typist_loses_nothing(guest: Visitor) -> None:
    page = guest.page
    for label, text in (("Name", "fast"), ("Image", "x:1"), ("Command", "run it"), ("Nodes", "3")):
        field(page, label).fill(text)
    field(page, "Nodes").blur()
    expect(manifest(page)).to_have_value(re.compile(r"numNodes: 3[\s\S]*image: x:1[\s\S]*- run"))
    expect(field(page, "Name")).to_have_value("fast")
    expect(manifest(page)).to_have_value(re.compile("name: fast"))


def test_a_field_that_is_filled_while_the_yaml_is_read_stays(guest: Visitor) -> None:
    page, held = guest.page, list[Route]()
    fill(page, "Name", "first")
    expect(manifest(page)).to_have_value(re.compile("name: first"))
    text = manifest(page).input_value()

    def hold_the_first(route: Route) -> None:
        if held:
            route.continue_()
        else:
            held.append(route)

    page.route("**/new", hold_the_first)
    with page.expect_request("**/new"):
        fill(page, "Manifest", text.replace("numNodes: 1", "numNodes: 6"))
    fill(page, "Name", "second")
    held[0].continue_()
    expect(manifest(page)).to_have_value(re.compile(r"name: second[\s\S]*numNodes: 6"))
    expect(field(page, "Name")).to_have_value("second")
    expect(field(page, "Nodes")).to_have_value("6")


def test_a_job_is_checked_and_created(guest: Visitor, trial: Trial) -> None:
    page = guest.page
    field(page, "Kind").select_option("TFJob")
    expect(page.get_by_label("Workers", exact=True)).to_be_visible()
    for label, text in (("Name", trial.name), ("Image", "example/train:1"), ("Workers", "2")):
        fill(page, label, text)
    press(page, "Check")
    expect(page.get_by_text(f"The API server would create tfjob {trial.namespace}/{trial.name}.")).to_be_visible()
    press(page, "Create")
    expect(page.get_by_label("Diagnosis")).to_be_visible()
    replicas = trial.jobs.get(trial.name)["spec"]["replicaSpecs"]
    assert [each["replicas"] for each in replicas] == [1, 2]
    page.get_by_role("link", name="Clone").click()
    expect(field(page, "Name")).to_have_value(f"{trial.name}-copy")
    expect(field(page, "Image")).to_have_value("example/train:1")
    expect(page.get_by_label("Workers", exact=True)).to_have_value("2")
    press(page, "Check")
    expect(page.get_by_text("The API server would create")).to_be_visible()
    text = manifest(page).input_value()
    fill(page, "Manifest", text.replace("      spec:\n", "      spec:\n        priorityClassName: nope\n"))
    press(page, "Check")
    expect(page.get_by_text("Warning: Kubernetes would refuse the pods")).to_be_visible()
    fill(page, "Manifest", text)
    fill(page, "Name", trial.name)
    press(page, "Check")
    expect_problem(page, "Name", "already exists")


def test_bad_input_is_shown_at_its_field_and_changes_no_yaml(guest: Visitor) -> None:
    page = guest.page
    before = manifest(page).input_value()
    fill(page, "Nodes", "many")
    expect_problem(page, "Nodes", "must be a whole number from 1 to 5000")
    assert manifest(page).input_value() == before
    fill(page, "Nodes", "2")
    expect(field(page, "Nodes")).not_to_have_attribute("aria-invalid", "true")
    fill(page, "Manifest", "a: [")
    expect_problem(page, "Manifest", "cannot be read: line")
    assert manifest(page).input_value() == "a: ["


def test_the_answer_of_the_dry_run_is_shown_at_the_field_that_it_names(guest: Visitor) -> None:
    page = guest.page
    for label, text in (("Name", "Not_A_Name"), ("Image", "x:1")):
        fill(page, label, text)
    press(page, "Check")
    expect_problem(page, "Name", "lower-case letters")
    for label, text in (("Name", "a"), ("Framework", "torch"), ("Elastic: at least", "3"), ("Elastic: at most", "2")):
        fill(page, label, text)
    press(page, "Check")
    expect_problem(page, "Elastic: at least", "maxNodes")
    for label, text in (("Elastic: at least", ""), ("Elastic: at most", ""), ("Namespace", "nowhere")):
        fill(page, label, text)
    press(page, "Check")
    expect_problem(page, "Namespace", "nowhere")
    text = manifest(page).input_value()
    fill(page, "Manifest", text.replace("spec:\n", "spec:\n  noSuchField: 1\n"))
    press(page, "Check")
    expect(page.locator("#problem-yaml")).to_contain_text("noSuchField")


def test_buttons_that_are_pressed_before_earlier_answers_have_come_do_their_work_in_order(
    guest: Visitor, trial: Trial
) -> None:
    page = guest.page
    field(page, "Kind").select_option("TFJob")
    expect(field(page, "Workers")).to_be_visible()
    for label, text in (("Name", trial.name), ("Image", "example/train:1")):
        fill(page, label, text)
    expect(manifest(page)).to_have_value(re.compile("image: example/train:1"))
    slow = {"offline": False, "latency": 500, "downloadThroughput": -1, "uploadThroughput": -1}
    page.context.new_cdp_session(page).send("Network.emulateNetworkConditions", slow)
    fill(page, "Workers", "3")
    press(page, "Check")
    press(page, "Create")
    page.get_by_role("button", name="Create", exact=True).blur()
    expect(page.get_by_label("Diagnosis")).to_be_visible()
    assert [each["replicas"] for each in trial.jobs.get(trial.name)["spec"]["replicaSpecs"]] == [1, 3]


def test_no_field_can_inject_anything(guest: Visitor) -> None:
    page = guest.page
    for label in TEXTS:
        fill(page, label, PRINTABLE)
    press(page, "Write to YAML")
    expect_problem(page, "Nodes", "has more than 20 characters")
    hostile = {"apiVersion": "kubeflow.org/v2alpha1", "kind": "TrainJob", "metadata": {"name": PRINTABLE}}
    program = {"image": "x", "command": [PRINTABLE], "env": [{"name": f"={SCRIPT}", "value": "x"}]}
    spec = {"numNodes": 1, "framework": SCRIPT, "trainer": program}
    text = yaml.safe_dump(hostile | {"spec": spec})
    fill(page, "Manifest", text)
    expect(field(page, "Framework")).to_have_value(SCRIPT)
    press(page, "Check")
    expect_problem(page, "Name", "lower-case letters")
    fill(page, "Name", "harmless")
    press(page, "Check")
    expect_problem(page, "Framework", "lower-case letters")
    fill(page, "Framework", "")
    press(page, "Check")
    expect_problem(page, "Manifest", "<script>")
    fill(page, "Manifest", f"</textarea>{PRINTABLE}: [")
    expect_problem(page, "Manifest", "cannot be read")
    assert page.locator("main img, main script").count() == 0
    assert page.title() == "New job"


def test_the_page_works_without_scripts(browser: Browser, address: str, trial: Trial) -> None:
    context = browser.new_context(java_script_enabled=False)
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    page.goto(address)
    page.get_by_role("link", name="New job").click()
    field(page, "Name").fill(trial.name)
    field(page, "Image").fill("example/train:1")
    press(page, "Create")
    expect(page.locator("#problem-yaml")).to_contain_text("The form and the YAML differ")
    press(page, "Write to YAML")
    expect(manifest(page)).to_have_value(re.compile("image: example/train:1"))
    manifest(page).fill(manifest(page).input_value().replace("numNodes: 1", "numNodes: 3"))
    press(page, "Read from YAML")
    expect(field(page, "Nodes")).to_have_value("3")
    press(page, "Check")
    expect(page.get_by_text("The API server would create")).to_be_visible()
    context.close()


def test_a_request_without_the_pages_token_creates_nothing(guest: Visitor, trial: Trial) -> None:
    text = f"apiVersion: kubeflow.org/v2alpha1\nkind: TrainJob\nmetadata: {{name: {trial.name}}}\nspec: {{numNodes: 1}}"
    for token in ("", "wrong"):
        answer = guest.page.request.post(guest.page.url, form={"do": "create", "yaml": text, "csrf_token": token})
        assert answer.status == 403


def test_the_page_is_used_by_the_keyboard_alone(guest: Visitor) -> None:
    page = guest.page
    field(page, "Name").focus()
    for text in ("by-keys", "", "x:1", "run"):
        if text:
            page.keyboard.press("Control+A")
            page.keyboard.type(text)
        page.keyboard.press("Tab")
    expect(manifest(page)).to_have_value(re.compile(r"name: by-keys[\s\S]*image: x:1[\s\S]*- run"))
    expect(field(page, "Framework")).to_be_focused()
    page.get_by_role("button", name="Check").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_text("The API server would create")).to_be_visible()


def test_a_clone_shows_the_elastic_bounds_and_the_gang(guest: Visitor, trial: Trial) -> None:
    trial.submit(master(), workers(2), autoscaling={"minWorkers": 1, "maxWorkers": 4}, gang={"enabled": False})
    page = guest.page
    page.goto(page.url.split("/new")[0] + f"/new?from=tfjob/{trial.namespace}/{trial.name}")
    expect(field(page, "Elastic: at least")).to_have_value("1")
    expect(field(page, "Elastic: at most")).to_have_value("4")
    expect(field(page, "Gang")).to_have_value("no")
    expect(manifest(page)).not_to_have_value(re.compile("RuntimeId|status:|uid:"))
