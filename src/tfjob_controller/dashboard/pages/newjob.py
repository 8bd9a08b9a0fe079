"""The page of a new job: a form beside its YAML, each written from the other, and the server's dry run.

The job is created from the YAML. A form with other values is not sent: the user must select one of the two first.
The page works without scripts: then buttons do what otherwise happens at each change. Problems that a button has found
stay until their fields change, for which the page sends them with its fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from tfjob_controller.client.errors import ClientError
from tfjob_controller.client.job import Job
from tfjob_controller.client.kinds import Snapshot, kind_of_manifest
from tfjob_controller.dashboard.choices import Choices, read_choices
from tfjob_controller.dashboard.formproblems import problems_of
from tfjob_controller.dashboard.guard import CSRF_FIELD, CSRF_HEADER, is_token_of
from tfjob_controller.dashboard.jobform import (
    COMMON_FIELDS,
    DEFAULT_KIND,
    FORMS,
    YAML_KINDS,
    JobForm,
    cloned,
    kind_of,
    new_manifest,
    plain_copy,
)
from tfjob_controller.dashboard.jobreference import job_reference
from tfjob_controller.dashboard.jobtexts import FIELDS, form_of, manifest_of, read_texts, texts_of, yaml_of
from tfjob_controller.dashboard.manifesttext import small_manifest
from tfjob_controller.dashboard.pages import rendering
from tfjob_controller.dashboard.pages.forms import sent_fields
from tfjob_controller.dashboard.turns import BusyError
from tfjob_controller.dashboard.users import User
from tfjob_controller.kinds.kindform import LABELS, FormError, KindForm, Manifest, mapping_at, string_at
from tfjob_controller.kube.client import DRY_RUN, STRICT
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.names import namespace_violation

_DIFFERENT = (
    "The form and the YAML differ. Press Write to YAML to keep the values of the form, or Read from YAML to keep those "
    "of the YAML, and try again."
)


# What the browser names as the source of a request that a change of a field sends, not a button.
_SIDES = ("new-form", "new-yaml")
_MAX_MARKS = 100_000


class _Mark(msgspec.Struct, frozen=True, array_like=True):
    """A problem that a button has found, and the text of its field."""

    text: str
    problem: str


_decode_marks = msgspec.json.Decoder(dict[str, _Mark]).decode


@dataclass(frozen=True, slots=True)
class _State:
    """What the page shows. `has_summary` if the problems are those of a button, which are listed above the form."""

    texts: Mapping[str, str]
    yaml: str
    problems: Mapping[str, str] = field(default_factory=dict)
    good: str = ""
    has_summary: bool = False

    @property
    def form(self) -> KindForm | None:
        """None for a kind that is written as YAML."""
        kind = self.texts["kind"]
        return None if kind in YAML_KINDS else FORMS.get(kind, FORMS[DEFAULT_KIND])

    @property
    def marks(self) -> str:
        marks = {name: _Mark(self.texts.get(name, ""), text) for name, text in self.problems.items()}
        return msgspec.json.encode(marks).decode() if self.has_summary and marks else ""

    def problem(self, name: str) -> str:
        return self.problems.get(name, "")

    @property
    def listed(self) -> Sequence[tuple[str, str, str]]:
        """The field of each problem, its label, and the sentence without that."""
        labels = {**LABELS, "yaml": "YAML", **({"nodes": self.form.nodes_label} if self.form is not None else {})}
        return [(name, labels[name], text.removeprefix(f"{labels[name]}: ")) for name, text in self.problems.items()]

    def has_problem(self, names: Sequence[str]) -> bool:
        return any(name in self.problems for name in names)

    def filled(self, names: Sequence[str]) -> int:
        """The number of fields that have a text."""
        return sum(1 for name in names if self.form is not None and name in self.form.parts and self.texts[name])

    def with_problems(self, problems: Mapping[str, str], *, has_summary: bool) -> _State:
        """Problems of fields that the form does not show are shown at the YAML."""
        shown = {*COMMON_FIELDS, *(self.form.parts if self.form is not None else ())}
        known = {name: text for name, text in problems.items() if name in shown}
        rest = "; ".join(text for name, text in problems.items() if name not in shown)
        return replace(self, problems={**known, **({"yaml": rest} if rest else {})}, has_summary=has_summary)


async def new_job_page(request: Request) -> Response:
    """An empty form, or with `from=KIND/NAMESPACE/NAME` one that is filled from an existing job."""
    user = rendering.user_of(request)
    try:
        original = await _original(request)
        namespace = await rendering.namespace_of(request) or user.namespace
        kinds = (await _choices(request, namespace)).kinds
        wanted = request.query_params.get("kind", "")
        kind = wanted if wanted in kinds else DEFAULT_KIND if DEFAULT_KIND in kinds else kinds[-1]

        def make() -> Manifest:
            return _first_manifest(kind, namespace) if original is None else _manifest_of_clone(original)

        state = await rendering.services(request).yaml.run(user.person, lambda: _first_state(make))
    except (ApiError, ClientError) as error:
        return rendering.problem_page(request, error, user.origin)
    except FormError as error:
        empty = _State(dict.fromkeys(FIELDS, ""), "")
        return await _page(request, empty.with_problems(error.problems, has_summary=True))
    return await _page(request, state)


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
    is_button = request.headers.get("hx-trigger") not in _SIDES
    turns = rendering.services(request).yaml
    try:
        if action == "write":
            marks = _marks_of(sent.get("marks", ""))
            state = await turns.run(user.person, lambda: _written(shown, marks))
            return await _page(request, replace(state, has_summary=is_button or state.has_summary))
        if action == "read":
            return await _page(request, await turns.run(user.person, lambda: _read(shown, is_button=is_button)))
        manifest = await turns.run(user.person, lambda: _agreed(shown))
        warnings: list[str] = []
        job = await rendering.read(request, lambda: _submit(user, manifest, action != "create", warnings.append))
    except FormError as error:
        more = await _refusals(request, shown) if action not in ("write", "read") else {}
        return await _page(request, shown.with_problems({**more, **error.problems}, has_summary=is_button))
    except (ApiError, ClientError) as error:
        problems = problems_of(error, rendering.message_of(error, user.origin))
        # The client names the first problem only.
        more = await _refusals(request, shown) if rendering.api_error_of(error) is None else {}
        return await _page(request, shown.with_problems({**more, **problems}, has_summary=True))
    if action != "create":
        good = f"The API server would create {job.kind} {job.namespace}/{job.name}."
        return await _page(request, replace(shown, good=" ".join((good, *(f"Warning: {text}." for text in warnings)))))
    target = rendering.job_url(job.namespace, job.kind, job.name)
    if request.headers.get("hx-request"):
        return Response(status_code=204, headers={"HX-Redirect": target})
    return RedirectResponse(target, 303)


async def _original(request: Request) -> Snapshot | None:
    """The job that the address names. Raises `ApiError` and `ClientError`."""
    if not (original := request.query_params.get("from", "")):
        return None
    user, named = rendering.user_of(request), job_reference(original)
    return await rendering.read(request, lambda: user.client.job(named.name, named.kind, named.namespace).snapshot)


def _first_state(make: Callable[[], Manifest]) -> _State:
    manifest = make()
    try:
        form, problems = JobForm.readable(manifest)
    except FormError as error:
        state = _State(dict.fromkeys(FIELDS, ""), yaml_of(manifest))
        return state.with_problems(error.problems, has_summary=True)
    return _State(texts_of(form), yaml_of(manifest)).with_problems(problems, has_summary=bool(problems))


def _manifest_of_clone(original: Snapshot) -> Manifest:
    if (manifest := small_manifest(original)) is None:
        raise FormError("yaml", "The job's manifest is too large for this form; copy it with kubectl.")
    return cloned(manifest)


def _first_manifest(kind: str, namespace: str) -> Manifest:
    manifest = new_manifest(kind)
    manifest["metadata"] = {"name": "", "namespace": namespace} if namespace else {"name": ""}
    return manifest


def _written(shown: _State, marks: Mapping[str, _Mark]) -> _State:
    """The YAML with the values of the form, except of fields that are wrong. Texts are shown as they were typed."""
    form, problems = read_texts(shown.texts)
    before = manifest_of(shown.yaml)
    after = form.apply(before, kept=problems)
    # The text itself if the form changes no value, so that its comments survive.
    text = shown.yaml if after == before else yaml_of(after)
    kept = texts_of(JobForm.from_manifest(after))
    texts = {**shown.texts, "other_env": kept["other_env"], "other_volumes": kept["other_volumes"]}
    same = {name: mark.problem for name, mark in marks.items() if texts.get(name) == mark.text}
    return replace(shown, texts=texts, yaml=text).with_problems({**same, **problems}, has_summary=bool(marks))


def _read(shown: _State, *, is_button: bool) -> _State:
    """The form with the values of the YAML; fields that cannot be shown are empty, and named."""
    form, problems = JobForm.readable(manifest_of(shown.yaml))
    return replace(shown, texts=texts_of(form)).with_problems(problems, has_summary=is_button and bool(problems))


def _marks_of(text: str) -> Mapping[str, _Mark]:
    """Without marks for a text that is none of this page's."""
    try:
        return _decode_marks(text) if 0 < len(text) < _MAX_MARKS else {}
    except msgspec.MsgspecError:
        return {}


def _agreed(shown: _State) -> Manifest:
    """The manifest of the YAML. Raises `FormError` if the form has other values.

    Where nobody changed the form, its own limits do not apply: the API server judges the YAML.
    """
    manifest = manifest_of(shown.yaml)
    read, problems = JobForm.readable(manifest)
    if _is_untouched(shown, read):
        return manifest
    form = form_of(shown.texts)
    if problems:
        raise FormError.of(problems)
    if form != read:
        raise FormError("yaml", _DIFFERENT)
    return manifest


def _is_untouched(shown: _State, read: JobForm) -> bool:
    """Whether the form has the texts that are read from the YAML."""
    texts = texts_of(read)
    names = [*COMMON_FIELDS, *(FORMS[read.kind].parts if read.kind in FORMS else ())]
    names += ["gpu_resource"] if texts["gpus"] else []
    return all(shown.texts[name].replace("\r\n", "\n") == texts[name] for name in names)


def _submit(user: User, manifest: Manifest, dry_run: bool, warn: Callable[[str], None]) -> Job:
    return user.client.submit(_without_empty_name(manifest), dry_run, warn)


async def _refusals(request: Request, shown: _State) -> dict[str, str]:
    """What the API server finds wrong with the YAML, at the fields of the form; nothing if it cannot be asked."""
    user = rendering.user_of(request)
    try:
        manifest = await rendering.services(request).yaml.run(user.person, lambda: manifest_of(shown.yaml))
        await rendering.read(request, lambda: _dry_run(user, manifest))
    except ApiError as error:
        return problems_of(error, "") if error.causes else {}
    except (FormError, ClientError):
        pass
    return {}


def _dry_run(user: User, manifest: Manifest) -> None:
    """Raises `ApiError`, `ClientError`, and `FormError` for what cannot be sent."""
    resource, metadata = kind_of_manifest(manifest).resource, mapping_at(manifest, "metadata", field="name")
    namespace = string_at(metadata, "namespace", "namespace") or user.namespace
    if not namespace or namespace_violation(namespace):
        return
    body = msgspec.json.encode(_without_empty_name(manifest))
    user.requester.request("POST", resource.path(namespace), body=body, query={**STRICT, **DRY_RUN}, retry=False)


def _without_empty_name(manifest: Manifest) -> Manifest:
    """The page begins with an empty name, which is none."""
    kind_of(manifest)
    copy = plain_copy(manifest)
    if isinstance(metadata := copy.get("metadata"), dict) and not metadata.get("name"):
        metadata.pop("name", None)
    return copy


async def _choices(request: Request, namespace: str) -> Choices:
    """What the form offers; as little as if the person could list nothing while the API server does not answer."""
    user = rendering.user_of(request)
    try:
        return await rendering.services(request).choices.get(user, namespace, lambda: read_choices(user, namespace))
    except (ApiError, ClientError, BusyError):
        return Choices()


async def _page(request: Request, state: _State) -> Response:
    choices = await _choices(request, state.texts["namespace"] or rendering.user_of(request).namespace)
    kind = state.texts["kind"]
    kinds = choices.kinds if not kind or kind in choices.kinds else [*choices.kinds, kind]
    return rendering.page(
        request,
        "newjob.html",
        state=state,
        form=state.form,
        kinds=kinds,
        choices=choices,
        options=_options,
        labels=LABELS,
    )


def _options(values: Sequence[str]) -> list[tuple[str, str]]:
    """Values and labels of a select; a name is shown without the kind that is its group."""
    return [(value, value.rpartition("/")[2] if value.startswith("TrainingRuntime/") else value) for value in values]
