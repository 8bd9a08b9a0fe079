"""What may be said aloud: one line, without the values of secret variables and without what is secret in URLs."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tfjob_controller.storage.uris import redact_urls

_HIDDEN = "***"
# A name with one of these words; whatever the libraries read their credentials from, and what users call theirs.
_SECRET_NAME = re.compile(r"KEY|SECRET|TOKEN|PASSW|CREDENTIAL|AUTH|SIGNATURE", re.IGNORECASE)
# Shorter values are no secrets, but words that would be hidden everywhere.
_SHORTEST = 6
# The kubelet keeps 2,048 bytes of a log's end as the reason.
_LONGEST_LINE = 1000


class Redactor:
    """Hides the secrets of one environment."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        values = {value.strip() for name, value in environ.items() if _SECRET_NAME.search(name)}
        # A path, as of GOOGLE_APPLICATION_CREDENTIALS, is what an error should tell.
        # Longest first, as one may hold another.
        self._secrets = sorted(
            (value for value in values if len(value) >= _SHORTEST and not value.startswith("/")), key=len, reverse=True
        )

    def __call__(self, text: str) -> str:
        """The text as one line of bounded length, safe to be shown."""
        line = redact_urls(" ".join(text.split()))
        for secret in self._secrets:
            line = line.replace(secret, _HIDDEN)
        line = line.encode("utf-8", "backslashreplace").decode()
        return line if len(line) <= _LONGEST_LINE else line[: _LONGEST_LINE - 1] + "…"
