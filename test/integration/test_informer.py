"""Informers on a real API server: the contract, and faults that only a real one shows."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from helpers.cluster import (
    Cluster,
    delete_namespace,
    delete_service_account,
    new_namespace,
    new_service_account,
    write_kubeconfig,
)
from helpers.informercontract import LIMIT_SECONDS, Diary, InformerContract, complete_lists
from helpers.poll import eventually
from helpers.things import Thing, decode_thing
from localcluster.api import APPLY_PATCH, Api
from localcluster.faultproxy import FaultProxy, Reply
from localcluster.programs import APISERVER
from tfjob_controller.kube import codec
from tfjob_controller.kube.cache import listwatch
from tfjob_controller.kube.cache.informer import Informer
from tfjob_controller.kube.codec import decoder_for
from tfjob_controller.kube.config.kubeconfig import load_config
from tfjob_controller.kube.http.transport import Transport
from tfjob_controller.kube.meta import ObjectMeta, Resource, version_of
from tfjob_controller.util.clock import RealClock

pytestmark = pytest.mark.cluster


class Parcel(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    data: dict[str, str] = {}


_decode_parcel = decoder_for(Parcel)


def decode(raw: Any) -> Thing:
    """A ConfigMap as a thing; its size stands in its data."""
    parcel = _decode_parcel(raw)
    return Thing(parcel.metadata, int(parcel.data.get("size", 0)))


CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", decode)


class Parcels:
    """Labelled ConfigMaps of one namespace, by server-side apply; the informer's requester goes through a proxy."""

    resource = CONFIG_MAPS
    label_selector = "test=parcel"

    def __init__(self, cluster: Cluster, namespace: str, proxy: FaultProxy, folder: Path) -> None:
        self.namespace = namespace
        self.proxy = proxy
        self.requester = _transport(proxy.kubeconfig(folder, cluster.own.token))
        self._writer = _transport(cluster.kubeconfig)

    def put(self, name: str, size: int) -> Thing:
        meta = {"name": name, "labels": {"test": "parcel"}}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"size": str(size)}}
        query = {"fieldManager": "test", "force": "true"}
        path = CONFIG_MAPS.path(self.namespace, name)
        return decode(
            self._writer.request("PATCH", path, query=query, body=codec.encode(body), content_type=APPLY_PATCH)
        )

    def remove(self, name: str) -> None:
        self._writer.request("DELETE", CONFIG_MAPS.path(self.namespace, name))

    def cut(self) -> None:
        self.proxy.cut_all()

    def informer(self, **options: Any) -> Informer[Thing]:
        return Informer(
            self.requester,
            CONFIG_MAPS,
            namespace=self.namespace,
            label_selector=self.label_selector,
            indexers={"size": lambda obj: [str(obj.size)]},
            clock=RealClock(),
            **options,
        )

    def close(self) -> None:
        self.requester.close()
        self._writer.close()


@contextlib.contextmanager
def parcels_of(cluster: Cluster, folder: Path) -> Iterator[Parcels]:
    namespace = new_namespace(cluster.api)
    with FaultProxy(cluster.api.server) as proxy:
        parcels = Parcels(cluster, namespace, proxy, folder)
        yield parcels
        parcels.close()
    delete_namespace(cluster.api, namespace)


@pytest.fixture
def parcels(control_plane: Cluster, tmp_path: Path) -> Iterator[Parcels]:
    with parcels_of(control_plane, tmp_path) as parcels:
        yield parcels


@pytest.fixture
def own_parcels(spare_control_plane: Cluster, tmp_path: Path) -> Iterator[Parcels]:
    with parcels_of(spare_control_plane, tmp_path) as parcels:
        yield parcels


@contextlib.contextmanager
def running(informer: Informer[Thing]) -> Iterator[tuple[Informer[Thing], Diary]]:
    """Started, synced, with a diary."""
    diary = Diary()
    informer.add_handler(diary)
    informer.start()
    try:
        eventually(lambda: informer.is_synced)
        yield informer, diary
    finally:
        assert informer.stop(LIMIT_SECONDS)


class TestInformerOnARealServer(InformerContract):
    @pytest.fixture
    def collection(self, parcels: Parcels) -> Parcels:
        return parcels


def test_objects_outside_the_selector_are_not_there(parcels: Parcels, api: Api) -> None:
    parcels.put("mine", 1)
    api.create(CONFIG_MAPS.path(parcels.namespace), {"metadata": {"name": "other"}})
    with running(parcels.informer()) as (informer, diary):
        api.patch(CONFIG_MAPS.path(parcels.namespace, "mine"), {"metadata": {"labels": {"test": "other"}}})
        diary.comes_to(("add", "mine", 1, True), ("delete", "mine", True))
        assert len(informer.store) == 0


def test_an_assumed_object_outside_the_selector_does_not_stay(parcels: Parcels, api: Api) -> None:
    with running(parcels.informer()) as (informer, _):
        stranger = api.create(CONFIG_MAPS.path(parcels.namespace), {"metadata": {"name": "stranger"}})
        assert informer.store.assume(decode(codec.encode(stranger)))
        # A bookmark says that the watch has passed it; the next list says so too, and does not take a minute to come.
        version = int(stranger["metadata"]["resourceVersion"])
        informer.store.bookmark(version)
        assert len(informer.store) == 0


def test_a_deletion_has_a_version_of_its_own(parcels: Parcels) -> None:
    last = parcels.put("a", 1)
    with running(parcels.informer()) as (informer, diary):
        parcels.remove("a")
        diary.comes_to(("add", "a", 1, True), ("delete", "a", True))
        assert informer.store.last_resource_version > version_of(last)


def test_a_server_that_refuses_streaming_lists_is_listed_in_pages(
    parcels: Parcels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listwatch, "PAGE_SIZE", 2)
    for number in range(5):
        parcels.put(f"n{number}", number)
    parcels.proxy.next(Reply(422, "Invalid"), path="sendInitialEvents")
    # Version 0 is answered from the server's cache, which knows no pages; after a 410 it is the newest.
    parcels.proxy.next(Reply(410, "Expired"), path="resourceVersion=0")
    with running(parcels.informer()) as (informer, _):
        assert len(informer.store) == 5
        statistics = informer.statistics().reflector
        assert (statistics.lists, statistics.list_pages, statistics.streaming_lists) == (1, 3, 0)
        parcels.put("n0", 7)
        eventually(lambda: informer.store.by_index("size", "7"), timeout=LIMIT_SECONDS)


def test_a_missing_crd_is_named_until_it_is_there(parcels: Parcels, api: Api) -> None:
    gadgets = Resource("bench.example.com", "v1", "gadgets", "Gadget")
    informer = Informer(parcels.requester, gadgets.with_decoder(decode_thing), clock=RealClock())
    informer.start()
    try:
        eventually(lambda: informer.last_error, timeout=LIMIT_SECONDS)
        assert "does not serve Gadget bench.example.com/v1; check that its CRD is installed:" in informer.last_error
        assert not informer.is_synced
        api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", _crd_of(gadgets))
        eventually(lambda: informer.is_synced)
        eventually(lambda: informer.last_error == "", timeout=LIMIT_SECONDS)
    finally:
        api.delete("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gadgets.bench.example.com")
        assert informer.stop(LIMIT_SECONDS)


def test_missing_rights_are_reported_with_their_account(
    parcels: Parcels, control_plane: Cluster, tmp_path: Path
) -> None:
    token = new_service_account(control_plane.api, parcels.namespace, "nobody", [])
    with contextlib.closing(_transport(write_kubeconfig(control_plane, token, tmp_path / "nobody"))) as requester:
        informer = Informer(requester, CONFIG_MAPS, clock=RealClock())
        informer.start()
        try:
            eventually(lambda: informer.last_error, timeout=LIMIT_SECONDS)
            who = f'User "system:serviceaccount:{parcels.namespace}:nobody" cannot watch resource "configmaps"'
            assert "cannot watch configmaps: " in informer.last_error
            assert who in informer.last_error
            assert not informer.is_synced
        finally:
            assert informer.stop(LIMIT_SECONDS)
            delete_service_account(control_plane.api, parcels.namespace, "nobody")


def test_a_compacted_history_is_a_410_and_a_new_list_with_tombstones(
    own_parcels: Parcels, spare_control_plane: Cluster
) -> None:
    own_parcels.put("gone", 1)
    own_parcels.put("stays", 1)
    with running(own_parcels.informer()) as (informer, diary):
        own_parcels.proxy.is_refusing = True
        own_parcels.cut()
        own_parcels.remove("gone")
        own_parcels.put("stays", 2)
        own_parcels.put("new", 1)
        spare_control_plane.own.compact_etcd()
        # A server that was there keeps the events in memory; one that has just started has none.
        spare_control_plane.own.kill(APISERVER)
        spare_control_plane.own.start_program(APISERVER)
        own_parcels.proxy.is_refusing = False
        eventually(lambda: complete_lists(informer) == 2, timeout=60.0)
        assert informer.statistics().reflector.expired == 1
        diary.comes_to(
            ("add", "gone", 1, True),
            ("add", "stays", 1, True),
            ("delete", "gone", False),
            ("add", "new", 1, False),
            ("update", "stays", 1, 2),
        )


def _transport(kubeconfig: Path) -> Transport:
    return Transport(load_config(str(kubeconfig)), qps=0)


def _crd_of(resource: Resource) -> dict[str, Any]:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "scope": "Namespaced",
            "names": {"plural": resource.plural, "kind": resource.kind},
            "versions": [{"name": resource.version, "served": True, "storage": True, "schema": schema}],
        },
    }
