"""The health checks for Argo CD: each of our kinds has one, based on its status."""

from typing import Any

import pytest

from haulout.api.objects import RawObject
from haulout.app.manifests import operator_manifests
from support.expectations.kstatus import CURRENT, IN_PROGRESS, kstatus
from support.packaging.argocd import HEALTH, health

KINDS = [
    (f"{it['spec']['group']}/{it['spec']['versions'][0]['name']}", it["spec"]["names"]["kind"])
    for it in operator_manifests.definitions(with_machines=True)
]
WITH_STATUS = [it for it in KINDS if it[1] != "MaintenanceRecord"]


def an_object(kind: tuple[str, str], *conditions: tuple[str, str], **status: Any) -> RawObject:
    condition_list = [{"type": name, "status": value, "message": f"{name} it is"} for name, value in conditions]
    obj: RawObject = {"apiVersion": kind[0], "kind": kind[1], "metadata": {"name": "any", "generation": 2}}
    return obj | {"status": {"observedGeneration": 2, "conditions": condition_list, **status}}


@pytest.mark.parametrize("kind", WITH_STATUS, ids=[it[1] for it in WITH_STATUS])
def test_health_of_each_kind_follows_from_its_conditions(kind: tuple[str, str]) -> None:
    ready, busy, stuck = ("Ready", "True"), ("Reconciling", "True"), ("Stalled", "True")
    assert health(an_object(kind, ready)) == ("Healthy", "Ready it is")
    assert health(an_object(kind, ("Ready", "False"), busy)) == ("Progressing", "Reconciling it is")
    assert health(an_object(kind, ready, busy)) == ("Progressing", "Reconciling it is")
    assert health(an_object(kind, ("Ready", "False"), stuck)) == ("Degraded", "Stalled it is")
    assert health(an_object(kind, ready, ("Stalled", "False"))) == ("Healthy", "Ready it is")


@pytest.mark.parametrize("kind", WITH_STATUS, ids=[it[1] for it in WITH_STATUS])
def test_unobserved_objects_are_progressing(kind: tuple[str, str]) -> None:
    new = an_object(kind) | {"status": {"observedGeneration": -1}}
    edited = an_object(kind, ("Ready", "True"), observedGeneration=1)
    silent = an_object(kind)
    bare = {name: value for name, value in an_object(kind).items() if name != "status"}
    assert {health(statu)[0] for statu in (new, edited, silent, bare)} == {"Progressing"}
    assert {kstatus(statu) for statu in (new, edited)} == {IN_PROGRESS}


def test_maintenance_record_is_always_healthy() -> None:
    """It has no status, and kstatus considers it current."""
    kind = next(candidate for candidate in KINDS if candidate[1] == "MaintenanceRecord")
    record: RawObject = {"apiVersion": kind[0], "kind": kind[1], "metadata": {"name": "n1", "generation": 7}}
    record |= {"total": 1, "entries": [{"time": "2026-01-01T00:00:00Z", "object": "profile/os"}]}
    assert kstatus(record) == CURRENT
    assert health(record)[0] == HEALTH[CURRENT]


def test_condition_without_a_message_is_supported() -> None:
    obj = an_object(KINDS[0], ("Ready", "True"))
    del obj["status"]["conditions"][0]["message"]
    assert health(obj) == ("Healthy", "")
