"""A query to a Prometheus: its settings, its bounds, and what its errors say; a real HTTP server."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from helpers.certificates import server_context
from helpers.httpserver import Answer, HttpServer, json_answer
from localcluster.certificates import of_loopback
from tfjob_controller.client.errors import ClientError
from tfjob_controller.client.liveuse import prometheus as module
from tfjob_controller.client.liveuse.prometheus import Prometheus, PrometheusError

SECRET = "very-secret"


def vector(*series: tuple[dict[str, str], str]) -> Answer:
    result = [{"metric": metric, "value": [1.5, value]} for metric, value in series]
    return json_answer({"status": "success", "data": {"resultType": "vector", "result": result}})


def error_of(answer: Answer) -> str:
    with HttpServer(lambda _: answer) as server, pytest.raises(PrometheusError) as raised:
        Prometheus(server.url).query("up")
    return str(raised.value)


def test_a_query_is_sent_as_a_form_below_the_path_of_the_url() -> None:
    metric = {"__name__": "up", "namespace": "team", "pod": "a", "other": "x"}
    with HttpServer(lambda _: vector((metric, "1"))) as server:
        (sample,) = Prometheus(f"{server.url}/prometheus/").query('up{pod="a"}')
    (request,) = server.requests
    assert (request.method, request.path) == ("POST", "/prometheus/api/v1/query")
    assert parse_qs(request.body.decode()) == {"query": ['up{pod="a"}'], "timeout": ["5s"]}
    assert (sample.metric.name, sample.pod, sample.number) == ("up", ("team", "a"), 1.0)


def test_renamed_labels_of_an_exporter_name_the_pod() -> None:
    metric = {"namespace": "gpu-operator", "pod": "exporter", "exported_namespace": "team", "exported_pod": "a"}
    with HttpServer(lambda _: vector((metric, "NaN"), (metric, "x"))) as server:
        not_a_number, text = Prometheus(server.url).query("up")
    assert not_a_number.pod == ("team", "a")
    assert math.isnan(not_a_number.number)
    assert math.isnan(text.number)


def test_the_token_is_read_for_each_query(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(f"{SECRET}\n")
    with HttpServer(lambda _: vector()) as server:
        prometheus = Prometheus(server.url, token_file=str(token))
        prometheus.query("up")
        token.write_text("next")
        prometheus.query("up")
        token.write_text("two\nlines")
        with pytest.raises(PrometheusError, match="contains no bearer token"):
            prometheus.query("up")
    assert [request.headers["authorization"] for request in server.requests] == [f"Bearer {SECRET}", "Bearer next"]


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "must be like https://"),
        ("prometheus:9090", "must be like https://"),
        ("file:///etc/passwd", "must be like https://"),
        ("https://", "must be like https://"),
        ("http://host:port", "must be like https://"),
        ("http://host:99999", "must be like https://"),
        ("http://[::1", "must be like https://"),
        ("http://host/a b", "must be like https://"),
        ("http://host/\r\nX: y", "must be like https://"),
        (f"http://{'a' * 3000}", "must be like https://"),
        (f"https://me:{SECRET}@host", "use --prometheus-token-file"),
        (f"https://{SECRET}@host", "use --prometheus-token-file"),
        ("https://host/?x=1", "must end before"),
        ("https://host/#x", "must end before"),
    ],
)
def test_an_invalid_url_is_refused_without_repeating_it(url: str, message: str) -> None:
    with pytest.raises(ClientError, match=message) as raised:
        Prometheus(url)
    assert "--prometheus-url" in str(raised.value)
    assert SECRET not in str(raised.value)


def test_files_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    for field, name in (("ca_file", "missing"), ("token_file", "missing"), ("token_file", "empty")):
        with pytest.raises(ClientError, match="--prometheus-"):
            Prometheus("https://host", **{field: str(tmp_path / name)})


def test_a_token_is_sent_without_tls_to_loopback_only(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(SECRET)
    for host in ("127.0.0.1", "localhost", "[::1]"):
        Prometheus(f"http://{host}:9090", token_file=str(tmp_path / "token"))
    with pytest.raises(ClientError, match="https://"):
        Prometheus("http://prometheus:9090", token_file=str(tmp_path / "token"))


def test_a_certificate_is_checked(tmp_path: Path) -> None:
    certificate, key = of_loopback(tmp_path, "prometheus")
    with HttpServer(lambda _: vector(), server_context(certificate, key)) as server:
        assert Prometheus(server.url, ca_file=str(certificate)).query("up") == []
        with pytest.raises(PrometheusError, match="TLS failed"):
            Prometheus(server.url).query("up")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Answer(401, b"no"), "refused the query .HTTP 401"),
        (Answer(302, b"", {"Location": "http://elsewhere/"}), "redirects .HTTP 302"),
        (Answer(200, b"<html>"), "not of Prometheus' API"),
        (Answer(200, b"[]"), "not of Prometheus' API"),
        (Answer(200, b"\x1f\x8b", {"Content-Encoding": "gzip"}), "not of Prometheus' API"),
        (json_answer({"status": "error", "errorType": "bad_data", "error": SECRET}, 400), "HTTP 400, bad_data"),
        (json_answer({"status": "error", "errorType": "<b>", "error": SECRET}, 422), "HTTP 422, no result"),
        (json_answer({"status": "success", "data": {"resultType": "matrix", "result": []}}), "no result"),
        (json_answer({"status": "success", "data": {"resultType": "vector", "result": [{"value": 1}]}}), "not of"),
    ],
)
def test_other_responses_are_errors_with_a_reason(answer: Answer, message: str) -> None:
    with HttpServer(lambda _: answer) as server, pytest.raises(PrometheusError, match=message) as raised:
        Prometheus(server.url).query("up")
    assert SECRET not in str(raised.value)
    assert server.url not in str(raised.value)


def test_a_response_that_is_too_large_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_RESPONSE_BYTES", 100_000)
    sent = []

    def endless() -> Iterator[bytes]:
        while len(sent) < 10_000:
            sent.append(1)
            yield b" " * 10_000

    assert error_of(Answer(chunks=endless())) == "its response is too large"
    assert len(sent) < 10_000
    within = json.dumps({"status": "success", "data": {"resultType": "vector", "result": []}}).ljust(99_999)
    with HttpServer(lambda _: Answer(body=within.encode())) as server:
        assert Prometheus(server.url).query("up") == []


def test_a_response_that_takes_too_long_is_not_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ANSWER_SECONDS", 0.2)

    def slow() -> Iterator[bytes]:
        while True:
            yield b" "

    assert error_of(Answer(chunks=slow())) == "it did not respond in time"


def test_a_server_that_is_away_is_said_without_its_address() -> None:
    with HttpServer() as server:
        prometheus = Prometheus(server.url)
    with pytest.raises(PrometheusError) as raised:
        prometheus.query("up")
    assert str(raised.value) == "it cannot be reached"
