"""The rules of kube/config/credentials.py."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from helpers.fakeclock import FakeClock
from helpers.poll import eventually
from tfjob_controller.kube.config import credentials
from tfjob_controller.kube.config.credentials import (
    AuthInfo,
    Credentials,
    KubeconfigError,
    bearer_header,
    exec_plugin,
    token_file,
)

TOKEN = "s3cr3t-t0ken"


class Issuer:
    """A source that gives a new token each time, or fails if told so."""

    def __init__(self, lifetime_seconds: float | None = 60.0) -> None:
        self.asked = 0
        self.lifetime_seconds = lifetime_seconds
        self.fails = False
        self.sticks = False

    def __call__(self) -> AuthInfo:
        self.asked += 1
        if self.fails:
            raise KubeconfigError("the issuer is away")
        return AuthInfo(f"Bearer {1 if self.sticks else self.asked}", self.lifetime_seconds)


class TestFreshness:
    def test_a_secret_is_read_again_when_its_time_is_over(self) -> None:
        clock, issuer = FakeClock(), Issuer()
        held = Credentials(issuer, clock)
        clock.advance(59.9)
        assert held.authorization() == "Bearer 1"
        clock.advance(0.1)
        assert held.authorization() == "Bearer 2"
        assert issuer.asked == 2

    def test_a_secret_without_a_lifetime_is_read_once(self) -> None:
        clock, issuer = FakeClock(), Issuer(None)
        held = Credentials(issuer, clock)
        clock.advance(1e9)
        assert held.authorization() == "Bearer 1"

    def test_the_first_reading_must_succeed(self) -> None:
        issuer = Issuer()
        issuer.fails = True
        with pytest.raises(KubeconfigError, match="the issuer is away"):
            Credentials(issuer, FakeClock())

    def test_a_later_failure_keeps_the_old_secret_is_logged_and_tried_again_soon(self) -> None:
        clock, issuer = FakeClock(), Issuer()
        held = Credentials(issuer, clock)
        issuer.fails = True
        clock.advance(60.0)
        with capture_logs() as logs:
            assert [held.authorization() for _ in range(5)] == ["Bearer 1"] * 5
        assert [entry["error"] for entry in logs] == ["the issuer is away"]
        issuer.fails = False
        clock.advance(credentials.RETRY_SECONDS)
        assert held.authorization() == "Bearer 3"

    def test_many_threads_read_it_once(self) -> None:
        clock, issuer = FakeClock(), Issuer()
        held = Credentials(issuer, clock)
        clock.advance(60.0)
        with ThreadPoolExecutor(8) as pool:
            assert set(pool.map(lambda _: held.authorization(), range(64))) == {"Bearer 2"}


class TestRefusal:
    def test_if_another_thread_has_renewed_it_already_nothing_is_read(self) -> None:
        clock, issuer = FakeClock(), Issuer()
        held = Credentials(issuer, clock)
        clock.advance(60.0)
        held.authorization()
        assert held.renew("Bearer 1")
        assert issuer.asked == 2

    def test_a_storm_of_refusals_does_not_become_a_storm_at_the_source(self) -> None:
        clock, issuer = FakeClock(), Issuer()
        issuer.sticks = True
        held = Credentials(issuer, clock)
        clock.advance(credentials.RETRY_SECONDS)
        assert [held.renew("Bearer 1") for _ in range(100)] == [False] * 100
        assert issuer.asked == 2


class TestTokenFiles:
    def test_a_missing_file_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(KubeconfigError, match=r"cannot read the token file .*/token: No such file or directory"):
            token_file(str(tmp_path / "token"))()

    @pytest.mark.parametrize("content", ["", f"{TOKEN}\n{TOKEN}", f"{TOKEN}\u00e4"])
    def test_what_cannot_stand_in_a_header_is_refused_without_showing_it(self, tmp_path: Path, content: str) -> None:
        (tmp_path / "token").write_text(content)
        with pytest.raises(KubeconfigError, match="holds no usable token") as caught:
            token_file(str(tmp_path / "token"))()
        assert TOKEN not in str(caught.value)

    def test_a_binary_file_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "token").write_bytes(b"\xff\xfe")
        with pytest.raises(KubeconfigError, match="it is not text"):
            token_file(str(tmp_path / "token"))()


def plugin(answer: Mapping[str, Any] | Exception, clock: FakeClock, hint: str = "") -> credentials.CredentialSource:
    def run() -> Mapping[str, Any]:
        if isinstance(answer, Exception):
            raise answer
        return answer

    return exec_plugin("aws", hint, run, clock)


class TestPlugins:
    def test_its_token_is_used_until_shortly_before_it_ends(self) -> None:
        clock = FakeClock()
        expiry = (clock.now() + timedelta(minutes=10)).isoformat().replace("+00:00", "Z")
        secret = plugin({"token": TOKEN, "expirationTimestamp": expiry}, clock)()
        assert secret.authorization == f"Bearer {TOKEN}"
        assert secret.lifetime_seconds == pytest.approx(600.0 - credentials.EXPIRY_MARGIN_SECONDS)

    def test_a_token_without_an_end_is_kept(self) -> None:
        assert plugin({"token": TOKEN}, FakeClock())().lifetime_seconds is None

    def test_its_certificate_becomes_files_that_only_the_owner_can_read(self) -> None:
        answer = {"clientCertificateData": "CERT", "clientKeyData": "KEY"}
        source = plugin(answer, FakeClock())
        secret = source()
        assert secret.certificate is not None
        assert [Path(path).read_text() for path in secret.certificate] == ["CERT", "KEY"]
        assert [stat.S_IMODE(os.stat(path).st_mode) for path in secret.certificate] == [0o600, 0o600]
        assert source().certificate == secret.certificate

    def test_a_new_certificate_is_a_new_generation(self) -> None:
        clock = FakeClock()
        answer = {"clientCertificateData": "CERT", "clientKeyData": "KEY"}
        held = Credentials(plugin(answer, clock), clock)
        clock.advance(credentials.RETRY_SECONDS)
        answer["clientCertificateData"] = "NEW"
        assert held.renew(None)
        assert held.certificate_generation == 1
        assert held.certificate is not None
        assert Path(held.certificate[0]).read_text() == "NEW"

    @pytest.mark.parametrize(
        ("answer", "words"),
        [
            pytest.param(FileNotFoundError(2, "No such file or directory"), "No such file or directory", id="missing"),
            pytest.param(
                RuntimeError(f"exec: process returned 3. {TOKEN}"), "it ended with exit code 3", id="its own failure"
            ),
            pytest.param(RuntimeError(f"exec: failed to decode {TOKEN}"), "is not an ExecCredential", id="no json"),
            pytest.param({}, "neither a token nor a certificate", id="nothing in it"),
            pytest.param({"clientCertificateData": "x"}, "neither a token nor", id="a certificate without its key"),
            pytest.param({"token": "x", "expirationTimestamp": "soon"}, "malformed", id="a bad date"),
            pytest.param({"token": "x", "expirationTimestamp": "2026-01-01"}, "malformed", id="a date without zone"),
        ],
    )
    def test_a_plugin_that_fails_is_named_without_what_it_said(
        self, answer: Mapping[str, Any] | Exception, words: str
    ) -> None:
        with pytest.raises(KubeconfigError, match=words) as caught:
            plugin(answer, FakeClock())()
        assert "'aws'" in str(caught.value)
        assert TOKEN not in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_plugin_that_hangs_is_not_started_again_beside_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "EXEC_TIMEOUT_SECONDS", 0.05)
    may_end = threading.Event()
    runs: list[int] = []

    def run() -> dict[str, Any]:
        runs.append(1)
        may_end.wait(60.0)
        return {"token": "late"}

    source = exec_plugin("aws", "", run, FakeClock())
    for _ in range(3):
        with pytest.raises(KubeconfigError, match="did not answer"):
            source()
    assert len(runs) == 1
    may_end.set()
    eventually(lambda: not [each for each in threading.enumerate() if each.name == "exec-plugin"], 10)
    assert source().authorization == "Bearer late"
    assert len(runs) == 1
    assert source().authorization == "Bearer late"
    assert len(runs) == 2


def test_no_secret_is_shown() -> None:
    secret = AuthInfo(bearer_header(TOKEN, "x"), 1.0, ("cert", "key"))
    held = Credentials(lambda: secret, FakeClock())
    assert TOKEN not in repr(secret) + str(secret) + repr(held)
