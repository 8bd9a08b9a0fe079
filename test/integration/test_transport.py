"""The client on a real API server: its responses and streams."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from helpers.cluster import Cluster, delete_namespace, new_namespace, new_service_account, write_kubeconfig
from helpers.poll import eventually
from localcluster.api import Api
from tfjob_controller.kube.client import ResourceClient
from tfjob_controller.kube.codec import decoder_for
from tfjob_controller.kube.config.kubeconfig import load_config
from tfjob_controller.kube.errors import NO_RESPONSE, ApiError
from tfjob_controller.kube.http.transport import Transport
from tfjob_controller.kube.meta import ObjectMeta, Resource

pytestmark = pytest.mark.cluster

WAIT_SECONDS = 60.0
WATCH = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": "300"}


class Parcel(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    data: dict[str, str] = {}


CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", decoder_for(Parcel))


Parcels = ResourceClient[Parcel]


def parcels_of(transport: Transport) -> Parcels:
    return ResourceClient(transport, CONFIG_MAPS)


@pytest.fixture
def parcels(requester: Transport) -> Parcels:
    return parcels_of(requester)


def parcel(name: str = "a", **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": data}


def failure(call: Callable[[], object]) -> ApiError:
    with pytest.raises(ApiError) as caught:
        call()
    return caught.value


class TestObjects:
    def test_they_are_created_read_changed_listed_and_deleted(self, parcels: Parcels, namespace: str) -> None:
        created = parcels.create(namespace, parcel(x="1"))
        assert parcels.get(namespace, "a") == created
        patched = parcels.patch(namespace, "a", {"metadata": {"labels": {"l": "1"}}, "data": {"y": "2"}})
        assert (patched.data, patched.metadata.labels) == ({"x": "1", "y": "2"}, {"l": "1"})
        updated = parcels.update(namespace, "a", parcel(z="3"))
        assert updated.data == {"z": "3"}
        parcels.create(namespace, {"metadata": {"name": "b", "labels": {"l": "1"}}})
        assert [one.metadata.name for one in parcels.list(namespace, "l=1")] == ["b"]
        parcels.delete(namespace, "a", uid=created.metadata.uid)
        assert failure(lambda: parcels.get(namespace, "a")).is_not_found

    def test_a_long_list_comes_in_pages_and_compressed(self, parcels: Parcels, namespace: str) -> None:
        for number in range(60):
            parcels.create(namespace, parcel(f"n{number:02}", text="x" * 4000))
        pages = list(parcels.pages(namespace, page_size=50))
        assert [len(page.items) for page in pages] == [50, len(pages[1].items)]
        assert {page.resource_version for page in pages} == {pages[0].resource_version}
        assert len(parcels.list(namespace)) >= 60


class TestRefusals:
    def test_a_name_that_is_taken(self, parcels: Parcels, namespace: str) -> None:
        parcels.create(namespace, parcel())
        error = failure(lambda: parcels.create(namespace, parcel()))
        assert error.is_already_exists
        assert str(error) == 'configmaps "a" already exists (409 AlreadyExists)'

    def test_a_version_that_is_old(self, parcels: Parcels, namespace: str) -> None:
        created = parcels.create(namespace, parcel())
        parcels.patch(namespace, "a", {"data": {"x": "1"}})
        stale = {"metadata": {"name": "a", "resourceVersion": created.metadata.resource_version}}
        assert failure(lambda: parcels.update(namespace, "a", stale)).is_conflict
        assert failure(lambda: parcels.patch(namespace, "a", stale)).is_conflict

    def test_an_invalid_object_says_what_is_wrong_where(self, parcels: Parcels, namespace: str) -> None:
        error = failure(lambda: parcels.create(namespace, parcel("A_")))
        assert error.status == 422
        assert [field for field, _ in error.causes] == ["metadata.name"]

    def test_a_quota_that_is_used_up(self, parcels: Parcels, namespace: str, api: Api) -> None:
        quota = {"metadata": {"name": "q"}, "spec": {"hard": {"count/configmaps": "1"}}}
        path = f"/api/v1/namespaces/{namespace}/resourcequotas"
        api.create(path, {"apiVersion": "v1", "kind": "ResourceQuota"} | quota)
        api.patch(
            f"{path}/q/status", {"status": {"hard": {"count/configmaps": "1"}, "used": {"count/configmaps": "1"}}}
        )
        error = eventually(lambda: _refusal(parcels, namespace), WAIT_SECONDS)
        assert error.is_forbidden
        assert "exceeded quota: " in error.message
        assert "NamespaceTerminating" not in error.cause_reasons

    def test_a_namespace_that_is_going_away(self, parcels: Parcels, api: Api) -> None:
        name = new_namespace(api)
        held = {"metadata": {"name": "held", "finalizers": ["test.example/held"]}}
        parcels.create(name, held)
        delete_namespace(api, name)
        error = _refusal(parcels, name)
        assert (error.status, "NamespaceTerminating" in error.cause_reasons) == (403, True)
        parcels.patch(name, "held", {"metadata": {"finalizers": None}})

    def test_missing_rights(self, control_plane: Cluster, namespace: str, api: Api, tmp_path: Path) -> None:
        token = new_service_account(api, namespace, "nobody", [])
        transport = Transport(load_config(str(write_kubeconfig(control_plane, token, tmp_path / "k"))), qps=0)
        error = failure(lambda: parcels_of(transport).get(namespace, "a"))
        transport.close()
        assert (error.is_forbidden, "quota" in error.message) == (True, False)
        assert "cannot get resource" in error.message

    def test_a_server_that_cannot_be_trusted(self, control_plane: Cluster, tmp_path: Path) -> None:
        config = yaml.safe_load(control_plane.kubeconfig.read_text())
        config["clusters"] = [
            {**entry, "cluster": {"server": entry["cluster"]["server"]}} for entry in config["clusters"]
        ]
        path = tmp_path / "k"
        path.write_text(yaml.safe_dump(config))
        transport = Transport(load_config(str(path)), qps=0)
        error = failure(lambda: parcels_of(transport).create("default", parcel()))
        transport.close()
        assert (error.status, error.reason, error.outcome_unknown) == (NO_RESPONSE, "NotConnected", False)
        assert "certificate verify failed" in error.message


def _refusal(parcels: Parcels, namespace: str) -> ApiError:
    """What creating one more is refused with, as soon as it is."""
    refusals: list[ApiError] = []

    def is_refused() -> bool:
        try:
            parcels.create(namespace, {"metadata": {"generateName": "more-"}})
        except ApiError as error:
            refusals.append(error)
        return bool(refusals)

    eventually(is_refused, WAIT_SECONDS)
    return refusals[0]


class TestStreams:
    def test_closing_wakes_a_reader_that_is_blocked_in_tls(self, requester: Transport, namespace: str) -> None:
        """Nothing else would end it while the test waits."""
        stream = requester.stream(CONFIG_MAPS.path(namespace), query=WATCH, read_timeout_seconds=10 * WAIT_SECONDS)
        with ThreadPoolExecutor(1) as threads:
            reading = threads.submit(lambda: list(stream))
            eventually(stream._reading.locked)
            stream.close()
            reading.result(WAIT_SECONDS)

    def test_many_can_be_closed_while_events_rush_in(
        self, requester: Transport, parcels: Parcels, namespace: str
    ) -> None:
        """No descriptor is closed under a reader, and no reader sees an error that is not one."""
        parcels.create(namespace, parcel())
        stop = threading.Event()

        def write() -> None:
            number = 0
            while not stop.is_set():
                number += 1
                parcels.patch(namespace, "a", {"data": {"n": str(number)}})

        def watch_shortly(number: int) -> int:
            stream = requester.stream(CONFIG_MAPS.path(namespace), query=WATCH, read_timeout_seconds=WAIT_SECONDS)
            timer = threading.Timer(0.01 * (number % 7), stream.close)
            timer.start()
            count = sum(1 for _ in stream)
            timer.join()
            return count

        with ThreadPoolExecutor(5) as threads:
            writing = threads.submit(write)
            counts = list(threads.map(watch_shortly, range(40)))
            stop.set()
            writing.result(WAIT_SECONDS)
        assert len(counts) == 40
        assert requester.statistics().open_streams == 0
