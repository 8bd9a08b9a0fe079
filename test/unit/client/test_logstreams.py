"""The logs of many replicas as one, when some of them cannot be had."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from tfjob_controller.client.errors import ClientError
from tfjob_controller.client.logstreams import MAX_FOLLOWED, LogLine, log_lines, stream_logs
from tfjob_controller.kube.errors import ApiError


@dataclass
class Shelf:
    """Logs by replica: lines, and what ends them if anything does."""

    logs: dict[str, list[bytes | Exception]]
    closed: threading.Event = field(default_factory=threading.Event)

    def lines(self, replica_id: str) -> Iterator[bytes]:
        for each in self.logs[replica_id]:
            if isinstance(each, Exception):
                raise each
            yield each

    def close(self) -> None:
        self.closed.set()


def tell(error: ApiError) -> ClientError:
    return ClientError(f"told: {error.message}")


def read_lines(shelf: Shelf, *, follow: bool) -> Iterator[LogLine]:
    replicas = list(shelf.logs)
    return log_lines(stream_logs(shelf, replicas, follow=follow), len(replicas), tell)


def read(shelf: Shelf, *, follow: bool) -> list[str]:
    return sorted(str(line) for line in read_lines(shelf, follow=follow))


GONE = ApiError(404, "NotFound", "no such pod")


@pytest.mark.parametrize("follow", [False, True])
def test_what_is_wrong_with_one_is_a_warning_and_the_others_are_read(follow: bool) -> None:
    shelf = Shelf({"a-0": [b"one", GONE], "a-1": [ClientError("a-1 has no pod")], "a-2": [b"two", b"\xff"]})
    with pytest.warns(UserWarning, match="no such pod|has no pod") as warned:
        assert read(shelf, follow=follow) == ["[a-0] one", "[a-2] two", "[a-2] \N{REPLACEMENT CHARACTER}"]
    assert sorted(str(each.message) for each in warned) == ["a-0: told: no such pod", "a-1 has no pod"]


@pytest.mark.filterwarnings("ignore:a-0")
@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize("count", [1, 2])
def test_where_no_replica_has_a_log_that_is_an_error(follow: bool, count: int) -> None:
    shelf = Shelf({f"a-{index}": [GONE] for index in range(count)})
    with pytest.raises(ClientError, match="told: no such pod"):
        list(read_lines(shelf, follow=follow))


def test_a_reader_that_stops_early_closes_what_is_followed() -> None:
    shelf = Shelf({"a-0": [b"line"] * 5000, "a-1": [b"line"] * 5000})
    lines = read_lines(shelf, follow=True)
    next(lines)
    lines.close()  # type: ignore[attr-defined]  # a generator is an iterator that can be closed
    assert shelf.closed.is_set()


def test_nobody_waits_for_a_thread_that_has_died() -> None:
    shelf = Shelf({"a-0": [ValueError("unforeseen")], "a-1": [b"line"]})
    with pytest.warns(UserWarning, match="a-0: ValueError: unforeseen"):
        assert read(shelf, follow=True) == ["[a-1] line"]


def test_too_many_are_not_followed() -> None:
    names = [f"a-{index}" for index in range(MAX_FOLLOWED + 1)]
    with pytest.raises(ClientError, match="too many to follow"):
        stream_logs(Shelf({}), names, follow=True)
