"""Fuzzing of what reads the API server's answers, objects of all kinds, quantities and kubeconfigs."""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from helpers.fuzzing import FUZZ, bounded, documents, mutations, outcome
from helpers.goodmanifests import GOOD_MANIFESTS
from helpers.trainmanifests import role_template, runtime, trainjob
from tfjob_controller.api.common.cluster import NODES
from tfjob_controller.api.common.core import BatchJob, Pod
from tfjob_controller.api.common.quantity import MAX_QUANTITY, milli_of
from tfjob_controller.api.common.scheduledpods import SCHEDULED_PODS
from tfjob_controller.api.gang import GANGS
from tfjob_controller.api.tfjob.types import TFJOBS
from tfjob_controller.api.trainjob.runtime import TRAINING_RUNTIMES
from tfjob_controller.api.trainjob.types import TRAINJOBS
from tfjob_controller.controller.decoders import decode_job, decode_pod, decode_pod_group
from tfjob_controller.kube import codec, nesting
from tfjob_controller.kube.cache.watchdecoder import (
    BookmarkDelta,
    DeleteDelta,
    ObjectReader,
    ReplaceDelta,
    SkipDelta,
    UpsertDelta,
    WatchDecoder,
    version_of_delta,
)
from tfjob_controller.kube.config.credentials import KubeconfigError
from tfjob_controller.kube.config.kubeconfig import find_config, load_config
from tfjob_controller.kube.errors import ApiError

DELTAS = (ReplaceDelta, UpsertDelta, DeleteDelta, SkipDelta, BookmarkDelta)
META = {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "5", "labels": {"x": "y"}, "generation": 1}
OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u2", "controller": True}
POD = {
    "metadata": {**META, "ownerReferences": [OWNER], "creationTimestamp": "2026-01-01T00:00:00Z"},
    "spec": {"nodeName": "n", "containers": [{"name": "c", "resources": {"requests": {"cpu": "1500m"}}}]},
    "status": {"phase": "Running", "containerStatuses": [{"name": "c", "state": {"terminated": {"exitCode": 1}}}]},
}
JOB = {"metadata": META, "spec": {"parallelism": 1}, "status": {"conditions": [{"type": "Failed", "status": "True"}]}}
GANG = {
    "metadata": META,
    "spec": {"members": [{"name": "worker", "count": 2, "requests": {"cpu": "1"}, "nodeSelector": {"a": "b"}}]},
    "status": {"phase": "Admitted", "attempt": 1},
}
NODE = {"metadata": META, "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}, "status": {"allocatable": {}}}
TFJOB_BODIES = [{**each.manifest, "metadata": META} for each in GOOD_MANIFESTS]
TRAINJOB_BODIES = [{**trainjob(runtimeRef={"name": "torch"}), "metadata": META}]
RUNTIMES = [{**runtime(template=role_template(env=[{"name": "a", "value": "b"}])), "metadata": META}]
STATUS = {
    "kind": "Status",
    "code": 410,
    "reason": "Expired",
    "message": "too old",
    "details": {"causes": [{"reason": "r", "message": "m", "field": "spec.x"}], "retryAfterSeconds": 3},
}
END = {"metadata": {"resourceVersion": "7", "annotations": {"k8s.io/initial-events-end": "true"}}}
EVENTS = [
    *({"type": type_, "object": TFJOB_BODIES[0]} for type_ in ("ADDED", "MODIFIED", "DELETED")),
    {"type": "ADDED", "object": POD},
    {"type": "BOOKMARK", "object": END},
    {"type": "ERROR", "object": STATUS},
]
LIST = {"metadata": {"resourceVersion": "5", "continue": "c", "remainingItemCount": 3}, "items": [POD, JOB]}

DECODERS: dict[Callable[[bytes], Any], list[dict[str, Any]]] = {
    TFJOBS.decode: TFJOB_BODIES,
    TRAINJOBS.decode: TRAINJOB_BODIES,
    TRAINING_RUNTIMES.decode: RUNTIMES,
    GANGS.decode: [GANG],
    decode_pod_group: [GANG],
    NODES.decode: [NODE],
    SCHEDULED_PODS.decode: [POD],
    codec.decoder_for(Pod): [POD],
    codec.decoder_for(BatchJob): [JOB],
    decode_pod: [POD],
    decode_job: [JOB],
}


@st.composite
def objects(draw: st.DrawFn) -> tuple[Callable[[bytes], Any], bytes]:
    decode = draw(st.sampled_from(list(DECODERS)))
    return decode, draw(documents(DECODERS[decode]))


@FUZZ
@given(objects())
def test_an_object_of_any_kind_is_decoded_or_refused_with_one_type_of_error(
    case: tuple[Callable[[bytes], Any], bytes],
) -> None:
    decode, data = case
    with bounded(len(data)):
        found = outcome(lambda: decode(data), msgspec.DecodeError)
    if isinstance(found, msgspec.DecodeError):
        event("refused")
        return
    event(f"invalid: {bool(getattr(found, 'invalid', ''))}")
    assert isinstance(found.metadata.name, str)
    assert isinstance(getattr(found, "invalid", ""), str)
    msgspec.json.encode(found)


@FUZZ
@given(st.lists(documents(EVENTS), min_size=1, max_size=6), st.sampled_from(list(DECODERS)), st.booleans())
def test_a_watch_goes_on_or_ends_with_an_api_error(
    lines: list[bytes], decode: Callable[[Any], Any], initial_events: bool
) -> None:
    decoder = WatchDecoder(ObjectReader(decode), initial_events=initial_events)
    with bounded(sum(map(len, lines))):
        for line in lines:
            was_listing = decoder.is_listing
            delta = outcome(lambda line=line: decoder.feed(line), ApiError)
            if isinstance(delta, ApiError):
                assert str(delta)
                return
            if delta is None:
                assert was_listing
            else:
                event(type(delta).__name__)
                assert isinstance(delta, DELTAS)
                assert isinstance(version_of_delta(delta), int)


@FUZZ
@given(documents([LIST]))
def test_a_list_is_decoded_or_refused_with_one_type_of_error(body: bytes) -> None:
    with bounded(len(body)):
        page = outcome(lambda: codec.decode_list(body), msgspec.DecodeError)
        if isinstance(page, msgspec.DecodeError):
            return
        assert isinstance(page.continue_, str)
        for item in page.items:
            found = outcome(lambda item=item: codec.decoder_for(Pod)(item), msgspec.DecodeError)
            event(f"item: {type(found).__name__}")


@FUZZ
@given(st.integers(300, 599), documents([STATUS]))
def test_an_error_response_of_any_content_becomes_an_api_error(status: int, body: bytes) -> None:
    with bounded(len(body)):
        error = codec.api_error(status, body)
    assert isinstance(error.status, int)
    assert error.message
    assert error.is_not_found in (True, False)
    assert str(error)
    assert error.retry_after_seconds is None or math.isfinite(error.retry_after_seconds)


@FUZZ
@given(documents([*TFJOB_BODIES, POD]) | mutations([b'{"a": [{"b": "c"}]}']))
def test_truncated_json_means_the_same_above_the_limit(data: bytes) -> None:
    with bounded(len(data)):
        truncated = nesting.truncate(data)
        is_too_deep = nesting.is_too_deep(data)
        has_many = nesting.has_more_values(data, 100)
    assert len(truncated) <= len(data) * 3
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return
    depth, _ = _measure(value)
    # Fields of the same name count each.
    _, count = _measure(json.loads(data, object_pairs_hook=lambda fields: [field for _, field in fields]))
    event(f"depth above the limit: {is_too_deep}")
    assert is_too_deep == (depth > nesting.MAX_LEVELS)
    assert _measure(json.loads(truncated))[0] <= nesting.MAX_LEVELS + 2
    assert nesting.truncate(truncated) == truncated
    assert is_too_deep or json.loads(truncated) == value
    if count < 50:
        assert not has_many


def _measure(value: Any) -> tuple[int, int]:
    """Returns the levels of nesting, and the number of containers and entries."""
    deepest, count, todo = 0, 0, [(value, 1)]
    while todo:
        each, level = todo.pop()
        if isinstance(each, (dict, list)):
            deepest, count = max(deepest, level), count + 1 + len(each)
            todo += [(child, level + 1) for child in (each.values() if isinstance(each, dict) else each)]
    return deepest, count


_SUFFIXES = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_NUMBERS = st.from_regex(r"[+-]?[0-9]{0,22}(\.[0-9]{0,22})?", fullmatch=True)
_ENDINGS = st.sampled_from([*_SUFFIXES, *_BINARY]) | st.integers(-30, 30).map("e{}".format)


@FUZZ
@given(
    st.text(max_size=12)
    | st.tuples(_NUMBERS, _ENDINGS).map("".join)
    | mutations([b"1500m", b"1Ki", b"2e3"], [b"0", b"9", b".", b"e", b"E9", b"-", b"m", b"\xd9\xa1"]).map(
        lambda data: data.decode("utf-8", "replace")
    )
)
def test_a_quantity_is_exact_or_a_value_error(text: str) -> None:
    with bounded(len(text)):
        found = outcome(lambda: milli_of(text), ValueError)
    if isinstance(found, ValueError):
        assert len(str(found)) < 1000
        return
    assert abs(found) <= MAX_QUANTITY * 1000
    exact = _exact(text)
    if exact is not None and abs(exact) <= MAX_QUANTITY:
        assert found == (math.ceil(exact * 1000) if exact >= 0 else math.floor(exact * 1000))


def _exact(text: str) -> Fraction | None:
    """Computes the quantity in another way; None for exponents that would take long."""
    for suffix, shift in _BINARY.items():
        if text.endswith(suffix):
            return _number(text[:-2]) * 2**shift
    if text[-1] in _SUFFIXES:
        return _number(text[:-1]) * Fraction(10) ** _SUFFIXES[text[-1]]
    number, _, exponent = text.lower().partition("e")
    if len(exponent) > 4:
        return None
    return _number(number) * Fraction(10) ** int(exponent or 0)


def _number(text: str) -> Fraction:
    whole, _, fraction = text.lstrip("+-").partition(".")
    value = Fraction(int((whole + fraction) or "0"), 10 ** len(fraction))
    return -value if text.startswith("-") else value


KUBECONFIG = {
    "current-context": "one",
    "contexts": [{"name": "one", "context": {"cluster": "here", "user": "me", "namespace": "ns"}}],
    "clusters": [{"name": "here", "cluster": {"server": "https://example.invalid:6443", "tls-server-name": "a"}}],
    "users": [{"name": "me", "user": {"token": "secret-token-1"}}],
}
PASSWORD = {**KUBECONFIG, "users": [{"name": "me", "user": {"username": "secret-user", "password": "secret-token-1"}}]}
PROXIED: dict[str, Any] = {
    **KUBECONFIG,
    "clusters": [{"name": "here", "cluster": {"server": "http://h", "proxy-url": "http://u:secret-token-1@proxy:1"}}],
}
# Nothing that names a program to run.
YAML_TOKENS = (
    *(b": ", b"- ", b"? ", b"[", b"{", b"]", b"}", b"&a ", b"*a", b"<<: *a", b"!!python/name:os.system ", b"!!binary "),
    *(b"\n", b"\n  ", b"|", b">", b"'", b'"', b"#", b"%", b"\t", b"\x00", b"\xff", b"\xef\xbb\xbf", b"---\n", b"...\n"),
    *(b"0b", b"0x", b"1:60", b"2001-99-99", b".inf", b"null", b"~", b"http://[", b"proxy-url: http://[", b"as: x"),
)


@st.composite
def kubeconfigs(draw: st.DrawFn) -> bytes:
    return draw(
        documents([KUBECONFIG, PASSWORD, PROXIED])
        | mutations([json.dumps(KUBECONFIG).encode(), json.dumps(KUBECONFIG, indent=1).encode()], YAML_TOKENS)
    )


@pytest.fixture(scope="module", autouse=True)
def _client_is_imported() -> None:
    """The Kubernetes client, which takes memory once."""
    import kubernetes.client.rest
    import kubernetes.config.exec_provider
    import kubernetes.config.incluster_config  # noqa: F401


@FUZZ
@given(kubeconfigs(), st.booleans())
def test_a_kubeconfig_is_read_or_refused_in_one_line_without_its_secrets(data: bytes, is_plain: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "config")
        Path(path).write_bytes(data)
        with bounded(len(data), bytes_each=2000):
            found = outcome(lambda: find_config(path) if is_plain else load_config(path), KubeconfigError)
    event(type(found).__name__)
    if isinstance(found, KubeconfigError):
        assert "\n" not in str(found)
        assert "secret-token-1" not in str(found)
        return
    assert isinstance(found.namespace, str)
    assert isinstance(found.request_prefix, str)
    assert "secret-token-1" not in repr(found)
