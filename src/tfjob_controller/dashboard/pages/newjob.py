"""The page of a new job: a form beside its YAML, each written from the other, and the server's dry run.

The job is created from the YAML. A form with other values is not sent: the user must select one of the two first.
The page works without scripts: then buttons do what otherwise happens at each change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from tfjob_controller.client.errors import ClientError
from tfjob_controller.client.job import Job
from tfjob_controller.client.kinds import Snapshot, kinds_named
from tfjob_controller.dashboard.guard import CSRF_FIELD, CSRF_HEADER, is_token_of
from tfjob_controller.dashboard.jobform import (
    DEFAULT_KIND,
    FORMS,
    YAML_KINDS,
    JobForm,
    cloned,
    kind_of,
    new_manifest,
    plain_copy,
)
from tfjob_controller.dashboard.jobtexts import (
    FIELDS,
    NO_PROBLEMS,
    Problems,
    TextError,
    form_of,
    framework_hint,
    manifest_of,
    problems_of,
    texts_of,
    yaml_of,
)
from tfjob_controller.dashboard.manifesttext import small_manifest
from tfjob_controller.dashboard.pages import rendering
from tfjob_controller.dashboard.pages.forms import sent_fields
from tfjob_controller.dashboard.users import User
from tfjob_controller.kinds.kindform import FormError, Manifest
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.names import name_violation, namespace_violation

_DIFFERENT = (
    "The form and the YAML differ. Press Write to YAML to keep the values of the form, or Read from YAML to keep those "
    "of the YAML, and try again."
)


@dataclass(frozen=True, slots=True)
class _State:
    """What the page shows."""

    texts: Mapping[str, str]
    yaml: str
    problems: Problems = NO_PROBLEMS
    good: str = ""


async def new_job_page(request: Request) -> Response:
    """An empty form, or with `from=KIND/NAMESPACE/NAME` one that is filled from an existing job."""
    user = rendering.user_of(request)
    try:
        original = await _original(request)
        namespace = await rendering.namespace_of(request) or user.namespace
        kind = request.query_params.get("kind", "")
        make = partial(_first_manifest, kind, namespace) if original is None else partial(_manifest_of_clone, original)
        state = await rendering.services(request).yaml.run(user.person, lambda: _first_state(make))
    except (ApiError, ClientError) as error:
        return rendering.problem_page(request, error, user.origin)
    except FormError as error:
        return _page(request, _State(dict.fromkeys(FIELDS, ""), "", _problem(error)))
    return _page(request, state)


async def new_job(request: Request) -> Response:
    """One of the buttons: write, read, check or create. Writing and reading also happen at each change."""
    sent = await sent_fields(request)
    # A form that a browser sends without scripts has the token in a field; the guard leaves this page to check it.
    token = request.headers.get(CSRF_HEADER) or sent.get(CSRF_FIELD, "")
    if not is_token_of(rendering.session_of(request), token):
        message = "The request has no valid token: reload the page and try again."
        return rendering.page(request, "problem.html", 403, message=message, status=403)
    shown = _State({name: sent.get(name, "") for name in FIELDS}, sent.get("yaml", "").replace("\r\n", "\n"))
    action, user = sent.get("do", ""), rendering.user_of(request)
    turns = rendering.services(request).yaml
    try:
        if action in ("write", "read"):
            change = _written if action == "write" else _read
            return _page(request, await turns.run(user.person, lambda: change(shown)))
        manifest = await turns.run(user.person, lambda: _agreed(shown))
        warnings: list[str] = []
        job = await rendering.read(request, lambda: _submit(user, manifest, action != "create", warnings.append))
    except FormError as error:
        return _page(request, replace(shown, problems=_problem(error)))
    except TextError as error:
        return _page(request, replace(shown, problems=error.problems))
    except (ApiError, ClientError) as error:
        message = rendering.message_of(error, user.origin)
        has_fields = shown.texts["kind"] not in YAML_KINDS
        problems = problems_of(error, message) if has_fields else Problems({"yaml": message})
        return _page(request, replace(shown, problems=problems))
    if action != "create":
        good = f"The API server would create {job.kind} {job.namespace}/{job.name}."
        return _page(request, replace(shown, good=" ".join((good, *(f"Warning: {text}." for text in warnings)))))
    target = rendering.job_url(job.namespace, job.kind, job.name)
    if request.headers.get("hx-request"):
        return Response(status_code=204, headers={"HX-Redirect": target})
    return RedirectResponse(target, 303)


async def _original(request: Request) -> Snapshot | None:
    """The job that the address names. Its parts become parts of another path. Raises `ApiError` and `ClientError`."""
    if not (original := request.query_params.get("from", "")):
        return None
    kind, namespace, name = [*original.split("/", 2), "", ""][:3]
    kinds_named(kind)
    if namespace_violation(namespace) or name_violation(name):
        raise ClientError(f"{original[:80]!r} does not name a job: it must be KIND/NAMESPACE/NAME.")
    user = rendering.user_of(request)
    return await rendering.read(request, lambda: user.client.job(name, kind, namespace).snapshot)


def _first_state(make: Callable[[], Manifest]) -> _State:
    manifest = make()
    try:
        return _State(texts_of(JobForm.from_manifest(manifest)), yaml_of(manifest))
    except FormError as error:
        return _State(dict.fromkeys(FIELDS, ""), yaml_of(manifest), _problem(error))


def _manifest_of_clone(original: Snapshot) -> Manifest:
    if (manifest := small_manifest(original)) is None:
        raise FormError("yaml", "The job's manifest is too large for this form; copy it with kubectl.")
    return cloned(manifest)


def _first_manifest(kind: str, namespace: str) -> Manifest:
    manifest = new_manifest(kind if kind in FORMS else DEFAULT_KIND)
    manifest["metadata"] = {"name": "", "namespace": namespace} if namespace else {"name": ""}
    return manifest


def _written(shown: _State) -> _State:
    """The YAML with the values of the form. Texts are shown again as they were typed."""
    form = form_of(shown.texts)
    return replace(shown, yaml=_yaml_with(form, shown.yaml))


def _yaml_with(form: JobForm, text: str) -> str:
    """The text itself if the form changes no value, so that its comments survive."""
    before = manifest_of(text)
    after = form.apply(before)
    return text if after == before else yaml_of(after)


def _read(shown: _State) -> _State:
    return replace(shown, texts=texts_of(JobForm.from_manifest(manifest_of(shown.yaml))))


def _agreed(shown: _State) -> Manifest:
    """The manifest of the YAML. Raises `FormError` if the form has other values."""
    manifest = manifest_of(shown.yaml)
    if form_of(shown.texts) != JobForm.from_manifest(manifest):
        raise FormError("yaml", _DIFFERENT)
    return manifest


def _submit(user: User, manifest: Manifest, dry_run: bool, warn: Callable[[str], None]) -> Job:
    return user.client.submit(_without_empty_name(manifest), dry_run, warn)


def _without_empty_name(manifest: Manifest) -> Manifest:
    """The page begins with an empty name, which is none."""
    kind_of(manifest)
    copy = plain_copy(manifest)
    if isinstance(metadata := copy.get("metadata"), dict) and not metadata.get("name"):
        metadata.pop("name", None)
    return copy


def _problem(error: FormError) -> Problems:
    return Problems({error.field or "yaml": str(error)})


def _page(request: Request, state: _State) -> Response:
    kind = state.texts["kind"]
    form = None if kind in YAML_KINDS else FORMS.get(kind, FORMS[DEFAULT_KIND])
    kinds = [*FORMS] if form is not None else [*FORMS, kind]
    return rendering.page(request, "newjob.html", state=state, kinds=kinds, form=form, framework_hint=framework_hint())
