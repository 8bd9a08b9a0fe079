"""The fields of a form that a browser has sent: few, and decoded outside the event loop where they may be long."""

from __future__ import annotations

import functools
from urllib.parse import parse_qsl

from starlette.requests import Request

from tfjob_controller.client.errors import ClientError
from tfjob_controller.dashboard.pages import rendering
from tfjob_controller.dashboard.streams import hold
from tfjob_controller.dashboard.turns import BusyError

_MAX_FIELDS = 50
# Longer ones are decoded in a thread. That of a new job has up to 600 KB.
_SHORT_BYTES = 65_536


def fields_of(body: bytes) -> dict[str, str]:
    """The fields; of several with one name the last. Raises `ClientError`."""
    try:
        return dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=_MAX_FIELDS))
    except ValueError:
        raise ClientError(f"the form has more than {_MAX_FIELDS} fields") from None


async def sent_fields(request: Request) -> dict[str, str]:
    """The fields of a person's form. Raises `ClientError`, and `BusyError` if a newer one displaces it."""
    services, person = rendering.services(request), rendering.user_of(request).person
    reading = await hold(services.forms, person, request.body())
    if reading.cancelled():
        raise BusyError("you send too many forms at a time: try again")
    body = reading.result()
    if len(body) <= _SHORT_BYTES:
        return fields_of(body)
    return await services.yaml.run(person, functools.partial(fields_of, body))
