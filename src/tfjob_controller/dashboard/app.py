"""The dashboard as an ASGI application: its routes, the guard in front of them, and what its pages share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from tfjob_controller.client.errors import ClientError
from tfjob_controller.client.history.reading import History
from tfjob_controller.client.liveuse.prometheus import Queries
from tfjob_controller.dashboard.guard import COOKIE, Guard
from tfjob_controller.dashboard.keptjobs import KeptJobs
from tfjob_controller.dashboard.loginrate import LoginRate
from tfjob_controller.dashboard.pages import (
    cluster,
    compare,
    history,
    job,
    jobchanges,
    jobs,
    jobsummary,
    newjob,
    queue,
    rendering,
    reports,
    use,
)
from tfjob_controller.dashboard.pages.login import LoginPages, Logins
from tfjob_controller.dashboard.services import ALONE, Bounds, Services
from tfjob_controller.dashboard.users import BrowserSessions
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.meta import PathError
from tfjob_controller.kube.names import MAX_NAME, NAME_PATTERN
from tfjob_controller.util.clock import Clock


class NameConvertor(Convertor[str]):
    """A part of a URL that is the name of an object. Only valid names pass, as they become parts of API paths."""

    # The bound comes first: the pattern takes quadratic time.
    regex = rf"(?=[^/]{{1,{MAX_NAME}}}(?:/|$)){NAME_PATTERN[1:-1]}"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("name", NameConvertor())


def create_app(
    logins: Logins,
    hosts: Sequence[str],
    clock: Clock,
    *,
    is_secure: bool,
    cookie: str = COOKIE,
    has_tls: bool = False,
    prometheus: Queries | None = None,
    kept: History | None = None,
) -> Starlette:
    """Returns the application. It answers requests with the Host headers `hosts`, and with those of loopback.

    `is_secure`: the browser sends the cookie, whose name is `cookie`, only over TLS. `has_tls`: this program itself
    terminates TLS. `prometheus` knows the use of GPUs, and `kept` is the history of ended jobs, if there are such.
    """
    sessions = BrowserSessions(clock)
    entrance = LoginPages(sessions, logins, LoginRate(clock), is_secure=is_secure, cookie=cookie)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await services.feeds.stop()

    app = Starlette(
        routes=[
            Route("/", _start),
            Route("/healthz", _healthz),
            Route("/login", entrance.login),
            Route("/login", entrance.submit, methods=["POST"]),
            Route("/logout", entrance.logout, methods=["POST"]),
            Route("/jobs", jobs.jobs_page),
            Route("/jobs/summary", jobsummary.summary_part),
            Route("/jobs/{action}", jobchanges.change_jobs, methods=["POST"]),
            Route("/events/jobs", jobs.jobs_events),
            Route("/jobs/{namespace:name}/{kind}/{name:name}", job.job_page),
            Route("/events/jobs/{namespace:name}/{kind}/{name:name}", job.job_events),
            Route("/metrics/{namespace:name}/{kind}/{name:name}", job.metrics),
            Route("/use/{namespace:name}/{kind}/{name:name}", use.use_page),
            Route("/logs/{namespace:name}/{kind}/{name:name}", job.log_events),
            Route("/logs/{namespace:name}/{kind}/{name:name}/file", job.log_download),
            Route("/jobs/{namespace:name}/{kind}/{name:name}/{action}", job.change, methods=["POST"]),
            Route("/new", newjob.new_job_page),
            Route("/new", newjob.new_job, methods=["POST"]),
            # The name of an entry is cut, so that it may end like no name; it becomes no part of an API path.
            Route("/history", history.history_page),
            Route("/history/{namespace:name}/{kind}/{name}/{uid}", history.record_page),
            Route("/history/{namespace:name}/{kind}/{name}/{uid}/metrics", history.metrics),
            Route("/history/{namespace:name}/{kind}/{name}/{uid}/log", history.log_events),
            Route("/history/{namespace:name}/{kind}/{name}/{uid}/log/file", history.log_file),
            Route("/queue", queue.queue_page),
            Route("/compare", compare.compare_page),
            Route("/reports", reports.reports_part),
            Route("/cluster", cluster.cluster_page),
            Mount("/static", StaticFiles(directory=rendering.FOLDER / "static")),
        ],
        middleware=[
            Middleware(
                Guard,
                sessions=sessions,
                hosts=hosts,
                token_header=logins.token_header,
                cookie=cookie,
                is_secure=is_secure,
                has_tls=has_tls,
            )
        ],
        exception_handlers={ApiError: _problem, ClientError: _problem, PathError: _problem, 404: _not_found},
        lifespan=lifespan,
    )
    bounds = Bounds() if logins.link is None else ALONE
    log_in_again = entrance.log_in_again if logins.link is None else None
    kept_jobs = KeptJobs(kept) if kept is not None else None
    services = app.state.services = Services.of(clock, bounds, log_in_again, prometheus, kept_jobs)
    return app


async def _start(request: Request) -> Response:
    return RedirectResponse("/jobs", 303)


async def _healthz(request: Request) -> Response:
    """Waits for no thread, because the pages may have taken them all."""
    return PlainTextResponse("ok\n")


def _problem(request: Request, error: Exception) -> Response:
    return rendering.problem_page(request, error, rendering.user_of(request).origin)


def _not_found(request: Request, error: Exception) -> Response:
    return rendering.page(request, "problem.html", 404, message="There is no such page.", status=404)
