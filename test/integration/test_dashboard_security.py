"""Attacks on the dashboard in a real browser: markup in every text, other sites, other people, tokens, endless logs."""

from __future__ import annotations

import re
import secrets
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest
import yaml
from playwright.sync_api import Browser, Dialog, Page, expect

from bench.usage import peak_resident_bytes
from helpers.browser import Visitor, visitor
from helpers.cluster import Cluster, clear_namespace, new_namespace, set_pod_running
from helpers.dashboards import (
    SharedDashboard,
    account,
    dashboard,
    expect_heading,
    faults,
    log_in,
    origin_of,
    running_dashboard,
    shared_dashboard,
)
from helpers.dashboardscene import TFJOB_NAME, TRAINJOB_NAME, Scene
from helpers.httpserver import Answer, HttpServer, Request
from helpers.kubectl import Kubectl
from helpers.logkubelet import Kubelet
from helpers.manifests import container, master, pod_template
from helpers.playground import Playground, Trial
from helpers.poll import eventually
from helpers.rights import RBAC

pytestmark = pytest.mark.cluster

# Each way out of an attribute, an element or a script, and what terminals and event streams obey. Elements of its own
# would have the attribute `data-hostile`.
MARKUP = (
    '"><b data-hostile>1</b>'
    "'><img data-hostile src=x onerror=alert(1)>"
    "</title></textarea></pre></style><script data-hostile>alert(2)</script>"
    '<b data-hostile hx-get="/queue" hx-trigger="load">3</b>'
    '" data-hostile onfocus=alert(4) autofocus x="'
    "{{ 7*7 }}${7*7}javascript:alert(5)&lt;b data-hostile&gt;"
)
CONTROLS = "\x1b[31m\x1b]8;;javascript:alert(6)\x07link\x1b]8;;\x07\x9b31m\x07\x00\u202e\u2066\u2028\u2029\x85"
HOSTILE = f"{MARKUP}{CONTROLS}\r\n\nevent: jobs\ndata: <b data-hostile>\n\n{MARKUP}"
UNPRINTABLE = set("\x00\x07\x1b\x9b\x85\u202e\u2066\u2028\u2029")
FOREIGN_MARKUP = "[data-hostile], main img, iframe, object, embed, base, script:not([src]), [onfocus], [onerror]"
MEGABYTE = 1_000_000
# The contract's limit for the whole server.
MAX_RESIDENT_BYTES = 150 * MEGABYTE
LONG_LINE_MEGABYTES, MANY_LINES = 200, 200_000
VISITS = 16
# More readers than the dashboard has threads for pages. The logs would answer after half a minute with an error.
MANY_READERS, SLOW_SECONDS = 60, 20.0


@pytest.fixture(scope="module")
def hostile(control_plane: Cluster, playground: Playground) -> Iterator[Scene]:
    """A namespace in which everything that can have any text is hostile."""
    namespace = new_namespace(control_plane.api)
    scene = Scene(
        control_plane.api, namespace, f"scene-{secrets.token_hex(4)}", "zone-1", HOSTILE, state=f"Running{HOSTILE}"
    )
    scene.build()
    yield scene
    scene.clear()
    clear_namespace(control_plane.api, namespace)


@pytest.fixture(scope="module")
def entered(
    browser: Browser, control_plane: Cluster, playground: Playground, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Visitor]:
    """A window of a person whose kubeconfig has a hostile name for its context; other windows take its cookies."""
    config = yaml.safe_load(control_plane.kubeconfig.read_text())
    config["contexts"] = [{**config["contexts"][0], "name": HOSTILE}]
    config["current-context"] = HOSTILE
    kubeconfig = tmp_path_factory.mktemp("hostile") / "kubeconfig"
    kubeconfig.touch(mode=0o600)
    kubeconfig.write_text(yaml.safe_dump(config))
    with dashboard(kubeconfig, "-n", playground.jobs.namespace) as address, visitor(browser) as first:
        first.page.goto(address)
        expect_heading(first.page, "Jobs")
        yield first


@pytest.fixture
def guest(browser: Browser, entered: Visitor) -> Iterator[Visitor]:
    """A window of that person. No dialog may open in it, and its console must stay without errors."""
    with visitor(browser, same_as=entered) as guest:
        opened: list[str] = []

        def note(dialog: Dialog) -> None:
            opened.append(dialog.message)
            dialog.dismiss()

        guest.page.on("dialog", note)
        guest.page.goto(origin_of(entered.page.url) + "/new")
        expect_heading(guest.page, "New job")
        yield guest
        assert opened == []
        assert faults(guest.errors) == []


def expect_no_markup(page: Page) -> None:
    assert page.locator(FOREIGN_MARKUP).count() == 0, page.url
    assert "hostile" not in page.title()


def expect_text(page: Page, selector: str) -> None:
    """The element shows the hostile text as text, without what is not printable in it."""
    expect(page.locator(selector).first).to_contain_text("<b data-hostile>1</b>")
    shown = page.locator("main").inner_text()
    assert not set(shown) & UNPRINTABLE
    expect_no_markup(page)


@pytest.mark.parametrize("name", [TFJOB_NAME, TRAINJOB_NAME])
def test_no_text_of_a_job_a_pod_or_an_event_becomes_markup(guest: Visitor, hostile: Scene, name: str) -> None:
    page, kind = guest.page, name.removeprefix("full-")
    origin = origin_of(page.url)
    page.goto(f"{origin}/jobs?namespace={hostile.namespace}&kind={kind}")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect_text(page, "td.reason")
    page.get_by_role("link", name=name, exact=True).click()
    expect_heading(page, f"{name} {kind} in {hostile.namespace}")
    for part in ("Conditions", "Events", "Timeline", "Manifest"):
        page.locator("summary", has_text=part).first.click()
    for selector in (".diagnosis", ".fields", ".timeline", ".timeline .warning"):
        expect_text(page, selector)
    expect(page.locator("pre.manifest")).to_contain_text("data-hostile")
    for section in ("Conditions", "Events"):
        expect(page.get_by_role("region", name=section)).to_contain_text("<b data-hostile>1</b>")
    expect(page.locator(".gantt rect.running").first).to_be_attached()
    # The next state arrives as an event of a stream, and is put into the page by a script.
    page.evaluate("window.isTheSamePage = true")
    hostile.write_statuses(loss=0.125)
    if kind == "trainjob":
        expect(page.locator("#view .fields")).to_contain_text("loss 0.125")
    expect_no_markup(page)
    assert page.evaluate("window.isTheSamePage")


def test_no_text_of_a_gang_or_a_node_becomes_markup(guest: Visitor, hostile: Scene) -> None:
    page, origin = guest.page, origin_of(guest.page.url)
    page.goto(f"{origin}/queue?namespace={hostile.namespace}")
    for part in ("h3", ".lack", ".why"):
        expect_text(page, f"article {part}")
    page.goto(f"{origin}/cluster?namespace={hostile.namespace}")
    expect(page.get_by_label(f"Node {hostile.node}", exact=True)).to_contain_text(TFJOB_NAME)
    expect_no_markup(page)
    expect(page.locator(".who")).to_contain_text("<b data-hostile>1</b>")


def test_a_clone_of_a_hostile_job_is_escaped_yaml_and_a_problem(guest: Visitor, hostile: Scene) -> None:
    page, origin = guest.page, origin_of(guest.page.url)
    for kind, name in (("tfjob", TFJOB_NAME), ("trainjob", TRAINJOB_NAME)):
        page.goto(f"{origin}/new?from={kind}/{hostile.namespace}/{name}")
        expect(page.locator("#problem-image")).to_contain_text("has control characters")
        shown = page.get_by_label("Manifest", exact=True).input_value()
        assert "data-hostile" in shown
        assert not set(shown) & UNPRINTABLE
        expect_no_markup(page)
        page.get_by_role("button", name="Check", exact=True).click()
        expect(page.locator('[aria-invalid="true"]').first).to_be_visible()
        expect_no_markup(page)


def test_no_parameter_or_path_becomes_markup(guest: Visitor, hostile: Scene) -> None:
    page, origin, text = guest.page, origin_of(guest.page.url), quote(HOSTILE, safe="")
    job = f"{hostile.namespace}/tfjob/{TFJOB_NAME}"
    addresses = [
        *(f"/jobs?namespace={hostile.namespace}&{name}={text}" for name in ("kind", "state", "text", "sort", "page")),
        *(f"/{path}?namespace={text}" for path in ("jobs", "queue", "cluster", "compare")),
        f"/compare?job={text}&job=tfjob/{text}/{text}&metric={text}&settings={text}",
        *(f"/new?{each}" for each in (f"from={text}", f"from=tfjob/{text}", f"from=tfjob/x/{text}", f"kind={text}")),
        *(f"/jobs/{each}" for each in (f"{text}/tfjob/x", f"x/{text}/x", f"x/tfjob/{text}", f"{job}/{text}")),
        f"/{text}",
        f"/static/{text}",
        f"/login?token={text}",
        f"/metrics/{text}/tfjob/x",
        f"/jobs/{job}?{text}={text}",
        f"/jobs?namespace={quote('../../../api/v1/namespaces/kube-system', safe='')}",
        f"/queue?namespace={quote('x/secrets?a=', safe='')}",
    ]
    for address in addresses:
        answer = page.goto(origin + address)
        assert answer is not None
        assert answer.status in (200, 400, 403, 404, 405, 422), f"{address}: {answer.status}"
        expect_no_markup(page)
    for address in (f"/logs/{job}?replica={text}", f"/events/jobs/x/tfjob/{text}", f"/metrics/{job}?{text}"):
        answer = page.request.get(origin + address, headers={"accept": "text/event-stream", "x-words": MARKUP})
        assert answer.status < 500, address
        assert "<b data-hostile>" not in answer.text()
        assert "\nevent: jobs" not in answer.text()


def test_no_line_of_a_log_becomes_markup_however_it_is_encoded(
    guest: Visitor, trial: Trial, logging_node: Kubelet
) -> None:
    trial.submit(master(template=pod_template(container(), nodeName=logging_node.name)))
    pod = trial.await_pod("master-0")["metadata"]["name"]
    escapes = ["\x1b[31m", "\x1b[38;5;1m", "\x1b]0;title\x07", "\x1b]8;;javascript:alert(7)\x1b\\link\x1b]8;;\x1b\\"]
    escapes += ["\x9b31m", "\x07", "\x08", "\u202e", "\x00", "\x1bPq\x1b\\", "\x1b[2J", "\x1b[99999999m", "\x1b]"]
    lines = [f"{escape}{MARKUP}{escape}".encode() for escape in escapes]
    lines += [MARKUP.encode() + b"\r" + MARKUP.encode(), b"\xff\xfe\xc0\x80" + MARKUP.encode() + b"\xed\xa0\x80"]
    lines += [b"\x1b[1m" * 5000 + MARKUP.encode(), MARKUP.encode() * 10_000, b"data: <b data-hostile>", b"", b"last"]
    logging_node.chunks = lambda: iter([b"loss=0.5\n", *(line + b"\n" for line in lines)])
    set_pod_running(trial.jobs.api, trial.namespace, pod)
    page = guest.page
    trial.await_phase("Running")
    page.goto(f"{origin_of(page.url)}/jobs/{trial.namespace}/tfjob/{trial.name}")
    log = page.get_by_role("log")
    expect(log.locator("div").last).to_have_text("last")
    assert log.locator("div").count() == len(lines) + 1
    assert set(log.locator("div *").evaluate_all("all => all.map(each => each.tagName)")) <= {"SPAN"}
    assert not set(log.inner_text()) & set("\x00\x07\x08\x1b\x9b\u202e")
    expect(page.locator("figcaption")).to_contain_text("loss")
    page.get_by_label("Search").fill("<b data-hostile>")
    expect(log.locator("div.hit").first).to_be_visible()
    expect_no_markup(page)
    assert page.title() == trial.name


# Other sites


@contextmanager
def site(host: str, pages: dict[str, str]) -> Iterator[str]:
    """Another website on this machine with these pages; its origin with that name."""

    def answer(request: Request) -> Answer:
        return Answer(body=pages.get(request.path, "").encode(), headers={"Content-Type": "text/html"})

    with HttpServer(answer) as server:
        yield f"http://{host}:{server.url.rpartition(':')[2]}"


def form_page(target: str, fields: dict[str, str]) -> str:
    inputs = "".join(f"<textarea name='{name}'>{value}</textarea>" for name, value in fields.items())
    return f"<form method=post action='{target}'>{inputs}</form><script>document.forms[0].submit()</script>"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "evil.test"])
def test_another_site_can_change_nothing_and_read_nothing(guest: Visitor, trial: Trial, host: str) -> None:
    """Other ports of 127.0.0.1 are the same site to a browser, which sends them the cookie."""
    trial.submit(master())
    trial.await_phase("Running")
    page, origin = guest.page, origin_of(guest.page.url)
    uid = trial.get()["metadata"]["uid"]
    created = f"made-{secrets.token_hex(4)}"
    manifest = (
        f"apiVersion: kubeflow.org/v2alpha1\nkind: TrainJob\nmetadata: {{name: {created}}}\nspec: {{numNodes: 1}}"
    )
    job = f"/jobs/{trial.namespace}/tfjob/{trial.name}"
    attacks = {
        **{f"{job}/{action}": {"uid": uid, "replicas": "3"} for action in ("delete", "suspend", "scale")},
        "/new": {"do": "create", "yaml": manifest, "kind": "TrainJob", "nodes": "1", "name": created},
        "/login": {"token": "another"},
        "/logout": {},
    }
    pages = {f"/{number}": form_page(origin + path, attacks[path]) for number, path in enumerate(attacks)}
    with site(host, pages) as evil:
        for number, path in enumerate(attacks):
            with page.expect_response(lambda answer, path=path: answer.url == origin + path) as seen:
                page.goto(f"{evil}/{number}")
            assert seen.value.status == 403, path
            assert seen.value.request.method == "POST"
        page.goto(f"{evil}/none")
        for path, fields in attacks.items():
            for mode in ("no-cors", "cors"):
                page.evaluate(
                    """async ([url, fields, mode]) => {
                      const body = new URLSearchParams(fields);
                      await fetch(url, { method: "POST", mode, credentials: "include", body }).catch(() => null);
                    }""",
                    [origin + path, fields, mode],
                )
        # A request that is not simple is preceded by a question, to which the dashboard does not agree.
        assert (
            page.evaluate(
                """url => fetch(url, { method: "POST", credentials: "include", headers: { "X-CSRF-Token": "x" } })
              .then(() => "sent", () => "refused")""",
                f"{origin}{job}/delete",
            )
            == "refused"
        )
        assert (
            page.evaluate(
                "url => fetch(url, { credentials: 'include' }).then(answer => answer.text(), () => 'refused')",
                f"{origin}/jobs",
            )
            == "refused"
        )
        guest.errors.clear()  # the browser reports what it has refused
    page.goto(origin + job)
    expect(page.get_by_label("Diagnosis")).to_be_visible()
    assert trial.get()["metadata"]["uid"] == uid
    assert not trial.get()["spec"].get("suspend")
    assert created not in [each["metadata"]["name"] for each in trial.jobs.api.list(trains_of(trial.namespace))]


def trains_of(namespace: str) -> str:
    return f"/apis/kubeflow.org/v2alpha1/namespaces/{namespace}/trainjobs"


@pytest.mark.parametrize("path", ["/jobs", "/login", "/healthz", "/static/dashboard.js", "/new"])
def test_a_name_that_is_rebound_to_this_machine_is_refused(guest: Visitor, path: str) -> None:
    """The resolver of this browser leads evil.test to 127.0.0.1."""
    port = guest.page.url.split(":")[2].split("/")[0]
    answer = guest.page.goto(f"http://evil.test:{port}{path}")
    assert answer is not None
    assert answer.status == 421
    assert "not served under the host name" in answer.text()
    guest.errors.clear()  # the browser reports the status, and a header that it obeys on trustworthy origins only


def test_no_page_can_be_framed_by_another_site(guest: Visitor) -> None:
    page, origin = guest.page, origin_of(guest.page.url)
    frames = "".join(f"<iframe src='{origin}{path}'></iframe>" for path in ("/jobs", "/login", "/new", "/healthz"))
    with site("127.0.0.1", {"/": frames}) as evil:
        page.goto(evil)
        eventually(lambda: len([each for each in guest.errors if "frame-ancestors" in each]) >= 4, timeout=60)
        for frame in page.frames[1:]:
            assert frame.url.startswith("chrome-error:"), frame.url
    guest.errors.clear()


# People and their tokens


def is_shown_as(page: Page, name: str) -> None:
    expect(page.locator(".who")).to_have_text(re.compile(f":{name}$"))


def test_behind_a_proxy_each_request_counts_by_its_token_and_not_by_its_cookie(
    browser: Browser, control_plane: Cluster, kubectl: Kubectl, trial: Trial, tmp_path: Path
) -> None:
    trial.submit(master())
    trial.await_phase("Running")
    kubectl.must("apply", "--server-side", "--force-conflicts", "-f", str(RBAC / "user-roles.yaml"))
    editor = account(kubectl, control_plane.api, "editor", trial.namespace, "edit")
    stranger = account(kubectl, control_plane.api, "stranger")
    with (
        shared_dashboard(control_plane, tmp_path, "--token-header=Authorization") as shared,
        visitor(browser, headers={"Authorization": f"Bearer {editor}"}) as person,
    ):
        page, address = person.page, f"{shared.address}/jobs/{trial.namespace}/tfjob/{trial.name}"
        page.goto(f"{shared.address}/jobs?namespace={trial.namespace}")
        is_shown_as(page, "editor")

        def may_change() -> bool:  # Kubernetes adds the shipped rights to its role a moment later
            page.goto(address)
            return page.get_by_role("button", name="Suspend").count() > 0

        eventually(may_change, timeout=90)
        form = {"uid": trial.get()["metadata"]["uid"]}
        csrf = yaml.safe_load(page.locator("body").get_attribute("hx-headers") or "")["X-CSRF-Token"]
        for token in (stranger, "not.a.token", ""):
            page.set_extra_http_headers({"Authorization": f"Bearer {token}"} if token else {})
            headers = {"X-CSRF-Token": csrf, "Authorization": f"Bearer {token}"}
            answer = page.request.post(f"{address}/suspend", form=form, headers=headers, max_redirects=0)
            assert (answer.status, answer.headers.get("location")) == (303, "/login"), token
        # The cookie is still that of the editor.
        page.set_extra_http_headers({"Authorization": f"Bearer {stranger}"})
        page.goto(shared.address)
        is_shown_as(page, "stranger")
        refused = page.goto(address)
        assert refused.status == 403
        for headers in ({}, {"Authorization": "Bearer not.a.token"}):
            with visitor(browser, headers=headers, same_as=person) as other:
                answer = other.page.goto(f"{shared.address}/jobs")
                assert answer is not None
                assert answer.status == 401
                expect_heading(other.page, "Log in")
                assert other.page.get_by_label("Token").count() == 0
        assert not trial.get()["spec"].get("suspend")
        page.set_extra_http_headers({"Authorization": f"Bearer {editor}"})
        page.goto(shared.address)
        is_shown_as(page, "editor")
        page.goto(address)
        page.get_by_role("button", name="Suspend").click()
        expect(page.locator("#view")).to_contain_text("it is suspended")


def test_two_browsers_of_a_person_have_sessions_of_their_own_and_people_see_what_they_may(
    browser: Browser, control_plane: Cluster, kubectl: Kubectl, trial: Trial, tmp_path: Path
) -> None:
    trial.submit(master())
    trial.await_phase("Running")
    kubectl.must("apply", "--server-side", "--force-conflicts", "-f", str(RBAC / "user-roles.yaml"))
    viewer = account(kubectl, control_plane.api, "viewer", trial.namespace, "view")
    stranger = account(kubectl, control_plane.api, "stranger")
    with (
        shared_dashboard(control_plane, tmp_path) as shared,
        visitor(browser) as first,
        visitor(browser) as second,
        visitor(browser) as other,
    ):
        address = f"{shared.address}/jobs/{trial.namespace}/tfjob/{trial.name}"
        for person, token in ((first, viewer), (second, viewer), (other, stranger)):
            log_in(person.page, shared.address, token)
            is_shown_as(person.page, "viewer" if token == viewer else "stranger")

        def may_see() -> bool:
            answer = second.page.goto(address)
            return answer is not None and answer.status == 200

        eventually(may_see, timeout=90)
        for change in ("Suspend", "Resume", "Scale", "Delete"):
            expect(second.page.get_by_role("button", name=change)).to_have_count(0)
        # What the page does not offer is refused as well.
        csrf = yaml.safe_load(second.page.locator("body").get_attribute("hx-headers") or "")["X-CSRF-Token"]
        form = {"uid": trial.get()["metadata"]["uid"]}
        for action in ("delete", "suspend", "scale"):
            answer = second.page.request.post(
                f"{address}/{action}", form={**form, "replicas": "2"}, headers={"X-CSRF-Token": csrf, "HX-Request": "1"}
            )
            assert "cannot" in answer.text()
        # A token against forged requests belongs to its session.
        answer = first.page.request.post(f"{address}/suspend", form=form, headers={"X-CSRF-Token": csrf})
        assert answer.status == 403
        for path in (
            f"/logs/{trial.namespace}/tfjob/{trial.name}",
            f"/events/jobs/{trial.namespace}/tfjob/{trial.name}",
        ):
            assert other.page.request.get(shared.address + path).status == 403
        answer = other.page.request.get(f"{shared.address}/metrics/{trial.namespace}/tfjob/{trial.name}")
        assert answer.status == 403
        first.page.get_by_role("button", name="Log out").click()
        expect_heading(first.page, "Log in")
        second.page.reload()
        expect(second.page.get_by_label("Diagnosis")).to_be_visible()
        assert not trial.get()["spec"].get("suspend")
        assert trial.get()["metadata"]["uid"] == form["uid"]


def test_two_dashboards_on_one_machine_keep_their_sessions_apart(
    browser: Browser, control_plane: Cluster, playground: Playground
) -> None:
    """Cookies of a host name are sent to all its ports."""
    arguments = ("-n", playground.jobs.namespace)
    with (
        dashboard(control_plane.kubeconfig, *arguments) as one,
        dashboard(control_plane.kubeconfig, *arguments) as two,
        visitor(browser) as person,
    ):
        for address in (one, two):
            person.page.goto(address)
            expect_heading(person.page, "Jobs")
        for address in (one, two):
            person.page.goto(origin_of(address) + "/queue")
            expect_heading(person.page, "Queue")
        cookies = person.context.cookies()
        assert len(cookies) == 2
        assert {(each["httpOnly"], each["sameSite"], each["path"]) for each in cookies} == {(True, "Strict", "/")}


def test_the_command_opens_the_address_in_the_browser_of_the_person(
    browser: Browser,
    control_plane: Cluster,
    playground: Playground,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened, script = tmp_path / "opened", tmp_path / "open"
    script.write_text(f'#!/bin/sh\nprintf %s "$1" > {opened}.part\nmv {opened}.part {opened}\n')
    script.chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{script} %s")
    arguments = ("--kubeconfig", str(control_plane.kubeconfig), "-n", playground.jobs.namespace)
    with running_dashboard(*arguments, opens_browser=True) as running, visitor(browser) as person:
        eventually(opened.exists, timeout=60)
        assert opened.read_text() == running.address
        person.page.goto(opened.read_text())
        expect_heading(person.page, "Jobs")


def test_a_token_is_never_logged_stored_or_part_of_an_address(
    browser: Browser, control_plane: Cluster, kubectl: Kubectl, trial: Trial, tmp_path: Path
) -> None:
    trial.submit(master())
    token = account(kubectl, control_plane.api, "member", trial.namespace, "view")
    wrong = "wrong-" + secrets.token_hex(16)
    with shared_dashboard(control_plane, tmp_path, "--log-level=debug") as shared, visitor(browser) as person:
        page, addresses = person.page, list[str]()
        person.context.on("request", lambda request: addresses.append(request.url))
        log_in(page, shared.address, wrong)
        expect(page.get_by_role("alert")).to_be_visible()
        assert wrong not in page.content()
        log_in(page, shared.address, token)
        is_shown_as(page, "member")
        for path in ("/jobs", f"/jobs/{trial.namespace}/tfjob/{trial.name}", "/queue", "/cluster", "/new", "/nothing"):
            page.goto(shared.address + path)
            assert token not in page.content()
        stored = page.evaluate("JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie])")
        assert token not in stored
        assert token not in str(person.context.storage_state())
        assert len(addresses) > 10
        expect_in_none((token, wrong), [*addresses, *traces_of(shared)])
    expect_in_none((token, wrong), [shared.output.read_text()])
    assert "serving the dashboard" in shared.output.read_text()


def expect_in_none(tokens: tuple[str, ...], texts: list[str]) -> None:
    for token in tokens:
        assert not any(token in each for each in texts)


def traces_of(shared: SharedDashboard) -> list[str]:
    """What other programs of the machine can see of the process, and what it has printed."""
    folder = Path(f"/proc/{shared.process.pid}")
    names = ("cmdline", "environ") if sys.platform == "linux" else ()
    return [shared.output.read_text(), *((folder / name).read_text() for name in names)]


def test_the_token_of_a_kubeconfig_stays_with_the_command(
    browser: Browser, control_plane: Cluster, playground: Playground
) -> None:
    token = control_plane.own.token
    arguments = ("--kubeconfig", str(control_plane.kubeconfig), "-n", playground.jobs.namespace)
    with running_dashboard(*arguments) as running, visitor(browser) as person:
        person.page.goto(running.address)
        expect_heading(person.page, "Jobs")
        for path in ("/jobs", "/new", "/cluster", "/nothing"):
            person.page.goto(origin_of(running.address) + path)
            assert token not in person.page.content()
        once = running.address.rpartition("=")[2]
        assert once not in person.page.evaluate("document.referrer + location.href")
        folder = Path(f"/proc/{running.process.pid}")
        expect_in_none((token, once), [(folder / name).read_text() for name in ("cmdline", "environ")])
        running.process.terminate()
        printed = "".join(running.process.communicate())
    expect_in_none((token, once), [printed])


# Logs of any size and at any speed


def test_logs_that_do_not_answer_keep_no_other_page_waiting(
    guest: Visitor, playground: Playground, logging_node: Kubelet
) -> None:
    slow, quick = playground.new_trial(), playground.new_trial()
    for each in (slow, quick):
        each.submit(master(template=pod_template(container(), nodeName=logging_node.name)))
        pod = each.await_pod("master-0")["metadata"]["name"]
        set_pod_running(each.jobs.api, each.namespace, pod)
        each.await_phase("Running")
    goes_on = threading.Event()
    logging_node.chunks = lambda: silence(goes_on)
    origin = origin_of(guest.page.url)
    cookie = "; ".join(f"{each['name']}={each['value']}" for each in guest.context.cookies())
    path = f"{slow.namespace}/tfjob/{slow.name}"
    with ThreadPoolExecutor(MANY_READERS) as readers:
        try:
            for index in range(MANY_READERS):
                kind = "metrics" if index % 2 else "logs"
                readers.submit(read_once, f"{origin}/{kind}/{path}", cookie)
            eventually(lambda: len([each for each in logging_node.requests if "/containerLogs/" in each.path]) > 20)
            begin = time.monotonic()
            for address in ("/queue", f"/jobs?namespace={slow.namespace}", f"/jobs/{path}", "/static/dashboard.js"):
                answer = guest.page.request.get(origin + address)
                assert answer.status == 200
            assert time.monotonic() - begin < SLOW_SECONDS
        finally:
            goes_on.set()
    for each in (slow, quick):
        each.clear()


def silence(goes_on: threading.Event) -> Iterator[bytes]:
    """A log of which nothing arrives before the event."""
    goes_on.wait(120)
    yield b"at last\n"


def read_once(address: str, cookie: str) -> bytes:
    with urllib.request.urlopen(urllib.request.Request(address, headers={"Cookie": cookie}), timeout=120) as answer:
        return bytes(answer.read(100))


def test_a_browser_that_goes_ends_the_thread_and_the_connection_of_its_log(
    browser: Browser, control_plane: Cluster, trial: Trial, logging_node: Kubelet
) -> None:
    trial.submit(master(template=pod_template(container(), nodeName=logging_node.name)))
    pod = trial.await_pod("master-0")["metadata"]["name"]
    set_pod_running(trial.jobs.api, trial.namespace, pod)
    trial.await_phase("Running")
    goes_on = threading.Event()
    logging_node.chunks = lambda: silence(goes_on)
    arguments = ("--kubeconfig", str(control_plane.kubeconfig), "-n", trial.namespace)
    try:
        with running_dashboard(*arguments) as running, visitor(browser) as person:
            person.page.goto(running.address)
            tasks = Path(f"/proc/{running.process.pid}/task")

            def visit(times: int) -> int:
                """Opens and leaves the page; returns the number of threads then."""
                for _ in range(times):
                    with person.page.expect_request(lambda request: "/logs/" in request.url):
                        person.page.goto(f"{origin_of(running.address)}/jobs/{trial.namespace}/tfjob/{trial.name}")
                    person.page.goto(f"{origin_of(running.address)}/queue")
                return len(list(tasks.iterdir()))

            before = visit(VISITS // 2)
            visit(VISITS)
            # Threads that many pages use are started over time, too; one for each visit would be more.
            eventually(lambda: len(list(tasks.iterdir())) < before + VISITS // 2)
    finally:
        goes_on.set()


def test_a_log_of_any_size_takes_bounded_memory_and_leaves_the_page_usable(
    browser: Browser, control_plane: Cluster, trial: Trial, logging_node: Kubelet
) -> None:
    trial.submit(master(template=pod_template(container(), nodeName=logging_node.name)))
    pod = trial.await_pod("master-0")["metadata"]["name"]
    set_pod_running(trial.jobs.api, trial.namespace, pod)
    trial.await_phase("Running")
    arguments = ("--kubeconfig", str(control_plane.kubeconfig), "-n", trial.namespace)
    with running_dashboard(*arguments) as running, visitor(browser) as person:
        page = person.page
        page.goto(running.address)
        logging_node.chunks = large_log
        page.goto(f"{origin_of(running.address)}/jobs/{trial.namespace}/tfjob/{trial.name}")
        log = page.get_by_role("log")
        expect(log.locator("div").last).to_have_text("the last line", timeout=300_000)
        assert log.locator("div").count() == 10_000
        assert peak_resident_bytes(running.process.pid) < MAX_RESIDENT_BYTES
        page.get_by_label("Search").fill(f"line {MANY_LINES - 1} ")
        expect(log.locator("div.hit")).to_have_count(1)
        page.get_by_role("link", name="Queue", exact=True).click()
        expect_heading(page, "Queue")
        assert faults(person.errors) == []


def large_log() -> Iterator[bytes]:
    """One line of many megabytes, then many lines."""
    for _ in range(LONG_LINE_MEGABYTES):
        yield b"x" * MEGABYTE
    yield b"\n"
    for begin in range(0, MANY_LINES, 1000):
        yield b"".join(b"line %d of the log\n" % number for number in range(begin, begin + 1000))
    yield b"the last line\n"
