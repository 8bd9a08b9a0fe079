"""The banner of every page if a program has stopped, so that the pages show its last reports."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from tfjob_controller.client.statusreports import CONTROLLER, GANG_SCHEDULER, STOPPED, StatusReport, read_report
from tfjob_controller.dashboard.pages import rendering
from tfjob_controller.dashboard.turns import BusyError
from tfjob_controller.kube.requester import server_now


async def reports_part(request: Request) -> Response:
    """A notice for each program that has stopped; nothing for those that run, or of which nothing is known."""
    user = rendering.user_of(request)

    def read() -> Sequence[StatusReport]:
        where = user.controller_namespace
        return [read_report(user.requester, program, "", where) for program in (CONTROLLER, GANG_SCHEDULER)]

    try:
        reports = await rendering.services(request).reports.get(user, "reports", read)
    except BusyError:
        return Response(status_code=204)
    now = server_now(user.requester)
    notices = (f"{report.notice(now)}." for report in reports if report.state == STOPPED)
    return HTMLResponse("".join(rendering.render("notice.html", notice=notice) for notice in notices))
