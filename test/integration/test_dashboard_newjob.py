"""The page of a new job in a real browser, against a real API server: form and YAML, dry run, creation, clones."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import yaml
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Locator, Page, Route, expect

from helpers.browser import PATIENCE_MS, Visitor, visitor
from helpers.cluster import Cluster, clear_namespace, new_namespace
from helpers.dashboards import HOSTILE, dashboard
from helpers.manifests import master, workers
from helpers.playground import Playground, Trial

pytestmark = pytest.mark.cluster

PRINTABLE = HOSTILE.replace("\x1b", "")
SCRIPT = "<script>alert()</script>"
TEXTS = ("Name", "Image", "Command", "Environment", "Nodes", "GPUs of each node", "Volumes", "Dataset", "Gang timeout")


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


def open_groups(page: Page) -> None:
    """Opens the parts of the form that are folded."""
    folded = page.locator("#new-form details:not([open]) > summary")
    while folded.count():
        folded.first.click()


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
    open_groups(page)
    for label, text in (("Name", "a"), ("Image", "x:1"), ("Elastic: at least", "3"), ("Elastic: at most", "2")):
        fill(page, label, text)
    field(page, "Framework").select_option("torch")
    press(page, "Check")
    expect_problem(page, "Elastic: at least", "maxNodes")
    for label, text in (("Elastic: at least", ""), ("Elastic: at most", "")):
        fill(page, label, text)
    expect(manifest(page)).not_to_have_value(re.compile("elasticPolicy"))
    text = manifest(page).input_value()
    fill(page, "Manifest", re.sub("namespace: .*", "namespace: nowhere", text))
    expect(field(page, "Namespace")).to_have_value("nowhere")
    press(page, "Check")
    expect_problem(page, "Namespace", "nowhere")
    fill(page, "Manifest", text.replace("spec:\n", "spec:\n  noSuchField: 1\n"))
    press(page, "Check")
    expect(page.locator("#problem-yaml")).to_contain_text("noSuchField")


def test_all_wrong_fields_are_marked_at_once_and_listed_above_the_form(guest: Visitor) -> None:
    page = guest.page
    open_groups(page)
    wrong = {"Name": "Not_A_Name", "CPU": "4x", "Memory": "16", "Environment": "A=1\nB", "Dataset": "bucket/data"}
    for label, text in wrong.items():
        fill(page, label, text)
    fill(page, "Image", "x:1")
    expect(manifest(page)).to_have_value(re.compile("image: x:1"))
    for label in wrong:
        expect(field(page, label)).to_have_attribute("aria-invalid", "true")
    expect(page.locator("#problems")).to_have_count(0)
    page.locator("summary", has_text="Data").click()
    press(page, "Check")
    expect(page.locator("#problems")).to_be_focused()
    expect(page.get_by_role("heading", name="5 fields need a change")).to_be_visible()
    expect_problem(page, "CPU", "is not a quantity; give one such as 500m or 4")
    expect_problem(page, "Memory", "is less than 1 MiB")
    expect_problem(page, "Environment", "line 2 is not NAME=value")
    expect(field(page, "Dataset")).to_be_visible()
    page.get_by_role("link", name="CPU", exact=True).click()
    expect(field(page, "CPU")).to_be_focused()
    fill(page, "CPU", "4")
    expect(page.get_by_role("heading", name="4 fields need a change")).to_be_visible()
    expect(field(page, "CPU")).not_to_have_attribute("aria-invalid", "true")


def test_all_fields_that_the_api_server_names_stay_marked_until_they_change(guest: Visitor) -> None:
    page = guest.page
    fill(page, "Name", "many-problems")
    expect(manifest(page)).to_have_value(re.compile("many-problems"))
    wrong = """spec:
  datasetConfig: {storageUri: s3://b/x, env: [{}]}
  modelConfig: {output: {secretRef: {name: keys}}}
  trainer: {image: x}
"""
    text = manifest(page).input_value()
    fill(page, "Manifest", text.replace("spec:\n", wrong))
    expect(field(page, "Image")).to_have_value("x")
    press(page, "Check")
    expect(page.locator("#problems")).to_be_focused()
    for label in ("Dataset", "Trained model"):
        expect(field(page, label)).to_have_attribute("aria-invalid", "true")
    fill(page, "Trained model", "s3://b/trained")
    expect(field(page, "Trained model")).not_to_have_attribute("aria-invalid", "true")
    expect(field(page, "Dataset")).to_have_attribute("aria-invalid", "true")


def test_each_field_of_the_form_reaches_the_created_job(guest: Visitor, train: Trial) -> None:
    page, trial = guest.page, train
    open_groups(page)
    field(page, "Framework").select_option("plain")
    field(page, "Gang").select_option("no")
    field(page, "GPU resource").select_option("amd.com/gpu")
    texts = {
        "Name": trial.name,
        "Image": "x:1",
        "Command": "run it",
        "Environment": "A=1\nB=x = y",
        "Nodes": "2",
        "CPU": "500m",
        "Memory": "2Gi",
        "GPUs of each node": "1",
        "Shared memory": "1Gi",
        "Volumes": "data:/data\nother:/mnt:ro",
        "Dataset": "s3://b/d",
        "Secret for the dataset": "keys",
        "Model to start with": "hf://o/m",
        "Trained model": "pvc://claim/o",
        "Checkpoints": "s3://b/c",
        "Checkpoints kept": "5",
        "Gang timeout": "30m",
        "Priority": "7",
        "Restart limit": "3",
        "Time limit": "2h",
        "Deleted after its end": "7d",
    }
    for label, text in texts.items():
        fill(page, label, text)
    expect(manifest(page)).to_have_value(re.compile("ttlSecondsAfterFinished: 604800"))
    press(page, "Create")
    expect(page.get_by_label("Diagnosis")).to_be_visible()
    spec = trial.jobs.get(trial.name)["spec"]
    (override,) = spec.pop("podSpecOverrides")
    mounts = {mount["mountPath"]: mount.get("readOnly") for mount in override["containers"][0]["volumeMounts"]}
    assert mounts == {"/dev/shm": None, "/data": None, "/mnt": True}
    # The order is that in which the form has written them, which may be in one step or in several.
    volumes = override["volumes"]
    assert [volume["emptyDir"] for volume in volumes if "emptyDir" in volume] == [
        {"medium": "Memory", "sizeLimit": "1Gi"}
    ]
    claims = [volume["persistentVolumeClaim"] for volume in volumes if "persistentVolumeClaim" in volume]
    assert [claim["claimName"] for claim in claims] == ["data", "other"]
    assert spec == {
        "framework": "plain",
        "numNodes": 2,
        "trainer": {
            "image": "x:1",
            "command": ["run", "it"],
            "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "x = y"}],
            "resourcesPerNode": {
                "requests": {"cpu": "500m", "memory": "2Gi"},
                "limits": {"memory": "2Gi", "amd.com/gpu": 1},
            },
        },
        "datasetConfig": {"storageUri": "s3://b/d", "secretRef": {"name": "keys"}},
        "modelConfig": {"input": {"storageUri": "hf://o/m"}, "output": {"storageUri": "pvc://claim/o"}},
        "checkpoint": {**spec["checkpoint"], "storageUri": "s3://b/c", "keep": 5},
        "gang": {"enabled": False, "timeoutSeconds": 1800, "priority": 7},
        "maxRestarts": 3,
        "activeDeadlineSeconds": 7200,
        "ttlSecondsAfterFinished": 604800,
    }


def test_the_fields_of_a_tfjob_reach_its_master_and_workers(guest: Visitor, trial: Trial) -> None:
    page = guest.page
    field(page, "Kind").select_option("TFJob")
    expect(field(page, "Workers")).to_be_visible()
    expect(field(page, "Runtime")).to_have_count(0)
    open_groups(page)
    expect(field(page, "Dataset")).to_have_count(0)
    texts = {"Name": trial.name, "Image": "x:1", "Workers": "1", "CPU": "1", "Environment": "A=1", "Volumes": "d:/data"}
    for label, text in {**texts, "Shared memory": "1Gi", "Restart limit": "3"}.items():
        fill(page, label, text)
    expect(manifest(page)).to_have_value(re.compile("backoffLimit: 3"))
    press(page, "Create")
    expect(page.get_by_label("Diagnosis")).to_be_visible()
    pods = [replica["template"]["spec"] for replica in trial.jobs.get(trial.name)["spec"]["replicaSpecs"]]
    for pod in pods:
        (container,) = pod["containers"]
        assert container["env"] == [{"name": "A", "value": "1"}]
        assert container["resources"] == {"requests": {"cpu": 1}}
        assert [mount["mountPath"] for mount in container["volumeMounts"]] == ["/data", "/dev/shm"]
        assert [volume["name"] for volume in pod["volumes"]] == ["d", "shared-memory"]
    assert len(pods) == 2


def test_namespaces_runtimes_and_claims_are_those_of_the_cluster(guest: Visitor, control_plane: Cluster) -> None:
    page = guest.page
    # What was read of a namespace a moment ago is not read again.
    namespace, other = new_namespace(control_plane.api), new_namespace(control_plane.api)
    runtime = {"apiVersion": "kubeflow.org/v2alpha1", "metadata": {"name": "offered"}, "spec": {"numNodes": 1}}
    of_cluster = {**runtime, "kind": "ClusterTrainingRuntime", "metadata": {"name": "offered-everywhere"}}
    volume = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "datasets"}, "spec": volume}
    everywhere = "/apis/kubeflow.org/v2alpha1/clustertrainingruntimes"
    paths = {
        f"/apis/kubeflow.org/v2alpha1/namespaces/{namespace}/trainingruntimes": {**runtime, "kind": "TrainingRuntime"},
        everywhere: of_cluster,
        f"/api/v1/namespaces/{namespace}/persistentvolumeclaims": claim,
    }
    try:
        for path, body in paths.items():
            control_plane.api.create(path, body)
        page.goto(page.url.split("/new")[0] + f"/new?namespace={other}")
        expect(field(page, "Namespace")).to_have_value(other)
        expect(field(page, "Runtime").locator("option", has_text="offered-everywhere")).to_have_count(1)
        expect(field(page, "Runtime").locator("option", has_text=re.compile("^offered$"))).to_have_count(0)
        field(page, "Namespace").select_option(namespace)
        expect(field(page, "Runtime").locator("option", has_text=re.compile("^offered$"))).to_have_count(1)
        assert field(page, "Namespace").locator("option", has_text="kube-system").count() == 0
        field(page, "Runtime").select_option("TrainingRuntime/offered")
        expect(manifest(page)).to_have_value(re.compile(r"runtimeRef:\s+name: offered\s+kind: TrainingRuntime"))
        open_groups(page)
        expect(page.locator("#hint-volumes")).to_contain_text("datasets")
    finally:
        for path, body in paths.items():
            name = body["metadata"]["name"]
            control_plane.api.delete(f"{path}/{name}")
        for name in (namespace, other):
            clear_namespace(control_plane.api, name)


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
    open_groups(page)
    for label in TEXTS:
        fill(page, label, PRINTABLE)
    press(page, "Write to YAML")
    expect_problem(page, "Nodes", "has more than 20 characters")
    expect(page.locator("#problems")).to_contain_text("8 fields need a change")
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
    expect(field(page, "Other variables")).to_have_value(re.compile("<script>"))
    field(page, "Framework").select_option("")
    press(page, "Check")
    expect_problem(page, "Environment", "<script>")
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
    page, keyboard = guest.page, guest.page.keyboard
    field(page, "Name").focus()
    texts = ("by-keys", "", "", "", "x:1", "run", "A=1", "", "4x", "2Gi")
    labels = ("Name", "Namespace", "Runtime", "Framework", "Image", "Command", "Environment", "Nodes", "CPU", "Memory")
    for label, text in zip(labels, texts, strict=True):
        expect(field(page, label)).to_be_focused()
        if text:
            keyboard.press("Control+A")
            keyboard.type(text)
        keyboard.press("Tab")
    expect(manifest(page)).to_have_value(re.compile(r"name: by-keys[\s\S]*image: x:1[\s\S]*- run[\s\S]*memory: 2Gi"))
    for _ in range(3):
        keyboard.press("Tab")
    expect(page.locator("summary", has_text="Data")).to_be_focused()
    keyboard.press("Enter")
    keyboard.press("Tab")
    expect(field(page, "Volumes")).to_be_focused()
    keyboard.type("data:/data")
    page.get_by_role("button", name="Check").focus()
    expect(manifest(page)).to_have_value(re.compile("claimName: data"))
    keyboard.press("Enter")
    expect(page.locator("#problems")).to_be_focused()
    keyboard.press("Tab")
    keyboard.press("Enter")
    expect(field(page, "CPU")).to_be_focused()
    keyboard.press("Control+A")
    keyboard.type("4")
    page.get_by_role("button", name="Check").focus()
    expect(manifest(page)).to_have_value(re.compile("cpu: 4"))
    keyboard.press("Enter")
    expect(page.get_by_text("The API server would create")).to_be_visible()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_nothing_in_a_form_with_wrong_fields(guest: Visitor, dark: bool) -> None:
    page = guest.page
    page.emulate_media(color_scheme="dark" if dark else "light")
    open_groups(page)
    for label, text in (("Name", "Not_A_Name"), ("CPU", "4x"), ("Volumes", "data")):
        fill(page, label, text)
    secret = "  trainer: {env: [{name: KEY, valueFrom: {secretKeyRef: {name: a, key: b}}}]}\n"
    press(page, "Check")
    expect(page.locator("#problems")).to_be_visible()
    assert Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"] == []
    fill(page, "Name", "a")
    fill(page, "Manifest", f"{manifest(page).input_value()}{secret}")
    expect(field(page, "Other variables")).to_have_value(re.compile("KEY: .*secretKeyRef"))
    for width in (1280, 360):
        page.set_viewport_size({"width": width, "height": 900})
        assert Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"] == []
        assert page.evaluate("document.scrollingElement.scrollWidth") <= width


def test_on_a_phone_the_yaml_is_folded(browser: Browser, guest: Visitor) -> None:
    with visitor(browser, 400, same_as=guest) as phone:
        phone.page.goto(guest.page.url)
        expect(field(phone.page, "Name")).to_be_visible()
        expect(manifest(phone.page)).to_be_hidden()
        phone.page.get_by_text("YAML", exact=True).click()
        expect(manifest(phone.page)).to_be_visible()
        assert phone.errors == []


def test_a_clone_shows_the_elastic_bounds_and_the_gang(guest: Visitor, trial: Trial) -> None:
    trial.submit(master(), workers(2), autoscaling={"minWorkers": 1, "maxWorkers": 4}, gang={"enabled": False})
    page = guest.page
    page.goto(page.url.split("/new")[0] + f"/new?from=tfjob/{trial.namespace}/{trial.name}")
    expect(field(page, "Elastic: at least")).to_have_value("1")
    expect(field(page, "Elastic: at most")).to_have_value("4")
    expect(field(page, "Gang")).to_have_value("no")
    expect(manifest(page)).not_to_have_value(re.compile("RuntimeId|status:|uid:"))
