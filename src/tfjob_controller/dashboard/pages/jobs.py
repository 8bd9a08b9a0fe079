"""The page of all jobs: live rows of all kinds, filtered, sorted and in pages, for any number of browsers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from tfjob_controller.client.errors import ClientError, role_remedy
from tfjob_controller.client.jobclass import JobClass
from tfjob_controller.client.kinds import OWN_KINDS
from tfjob_controller.client.reader import namespace_problem
from tfjob_controller.dashboard.feeds import JobFeed
from tfjob_controller.dashboard.jobrows import Selection, select, with_idle
from tfjob_controller.dashboard.pages import rendering
from tfjob_controller.dashboard.pages.use import idle_jobs_noted
from tfjob_controller.dashboard.shares import namespace_of_account
from tfjob_controller.dashboard.streams import EventStream
from tfjob_controller.dashboard.turns import BusyError
from tfjob_controller.dashboard.users import User
from tfjob_controller.kinds.clientkind import ClientKind
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.requester import server_now

# A page that is opened waits so long for the first list, and shows its rows once they arrive otherwise.
_FIRST_LIST_SECONDS = 2.0
_POLL_SECONDS = 0.02
# By the right that they need.
_ACTIONS = {"patch": ("suspend", "resume"), "delete": ("delete",)}


async def jobs_page(request: Request) -> Response:
    user = rendering.user_of(request)
    selection = Selection.of(request.query_params, user.namespace)
    try:
        selection = Selection.of(request.query_params, await rendering.namespace_of(request))
        if not await rendering.read(request, lambda: user.may_list_jobs(selection.namespace)):
            return _without_rows(request, user, selection, _no_rights(selection))
        async with rendering.services(request).feeds.jobs(user, selection.namespace) as feed:
            await _first_list(feed)
            kinds = feed.kinds or OWN_KINDS
            allowed = await rendering.read(request, lambda: _allowed_actions(user, selection.namespace, kinds))
            table = await rendering.read(request, lambda: _table(feed, user, selection))
    except (ApiError, ClientError) as error:
        if isinstance(error, BusyError) or rendering.api_error_of(error) is not None:
            return rendering.problem_page(request, error, user.origin)
        return _without_rows(request, user, selection, str(error))
    return _page(request, user, selection, kinds, table=table, allowed=allowed, is_live=True)


async def jobs_events(request: Request) -> Response | EventStream:
    """The table of a selection, again after each change."""
    user = rendering.user_of(request)
    try:
        selection = Selection.of(request.query_params, await rendering.namespace_of(request))
    except (ApiError, ClientError) as error:
        return rendering.problem_page(request, error, user.origin)

    async def parts() -> AsyncGenerator[bytes, None]:
        async with (
            rendering.services(request).feeds.jobs(user, selection.namespace) as feed,
            idle_jobs_noted(request, user, selection.namespace, feed),
        ):
            await _first_list(feed)

            async for part in rendering.events(
                request, "jobs", feed, lambda: rendering.Content(_table(feed, user, selection))
            ):
                yield part

    return rendering.event_stream(request, parts())


def _page(
    request: Request, user: User, selection: Selection, kinds: Sequence[ClientKind], **values: Any
) -> HTMLResponse:
    """The filter offers `kinds`, and the one that is selected."""
    words = dict.fromkeys([*(kind.word for kind in kinds), *([selection.kind] if selection.kind else [])])
    own = user.namespace or namespace_of_account(user.person)
    return rendering.page(
        request, "jobs.html", user=user, selection=selection, kinds=[*words], own_namespace=own, **values
    )


def _no_rights(selection: Selection) -> str:
    if not selection.namespace:
        return f"You may not list jobs in all namespaces: {role_remedy(True)}."
    where = f"namespace {selection.namespace}"
    return f"You may not list jobs in {where}: choose another namespace, or {role_remedy(True, 'that namespace')}."


def _without_rows(request: Request, user: User, selection: Selection, notice: str) -> HTMLResponse:
    table = rendering.render("jobs_table.html", notice=notice, shown=None)
    return _page(request, user, selection, OWN_KINDS, table=table, allowed=(), is_live=False)


def _allowed_actions(user: User, namespace: str, kinds: Sequence[ClientKind]) -> Sequence[str]:
    """What this person may do with jobs of a kind; nothing while that cannot be asked. Other buttons are not shown."""
    try:
        verbs = [verb for verb in _ACTIONS if any(user.may(verb, kind.resource, namespace) for kind in kinds)]
    except (ApiError, ClientError):
        return ()
    return [action for verb in verbs for action in _ACTIONS[verb]]


async def _first_list(feed: JobFeed) -> None:
    rest = _FIRST_LIST_SECONDS
    while rest > 0 and not feed.is_synced and not feed.problems:
        await asyncio.sleep(_POLL_SECONDS)
        rest -= _POLL_SECONDS


def _table(feed: JobFeed, user: User, selection: Selection) -> str:
    """The table of a selection, rendered once for all browsers of a person."""
    if not feed.rows():  # the notice about a namespace without jobs can change without a change of jobs
        return _rendered(feed, user, selection)
    return feed.content(selection, lambda: _rendered(feed, user, selection))


def _rendered(feed: JobFeed, user: User, selection: Selection) -> str:
    now = server_now(user.requester)
    rows = [with_idle(row, is_idle=feed.idle.includes(row, now)) for row in feed.rows()]
    notice = rendering.stale_notice(feed.problems)
    if not notice and not feed.is_synced:
        notice = "Loading the jobs of this namespace."
    if not notice and not rows and selection.namespace:
        notice = namespace_problem(user.requester, selection.namespace)
    return rendering.render(
        "jobs_table.html",
        notice=notice,
        shown=select(rows, selection),
        selection=selection,
        losses=feed.losses,
        classes=tuple(JobClass),
        now=now,
    )
