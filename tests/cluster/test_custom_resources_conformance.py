"""The sandbox accepts and refuses the same custom resources as the real server. Messages may differ."""

import asyncio
from collections.abc import Iterator
from functools import partial

import pytest

from controlplane import ControlPlane
from haulout.api import machinemaintenance, maintenancenotice, maintenancerecord, nodemaintenance
from haulout.core.clock import RealClock
from haulout.kube.transport import Transport
from haulout.kube.transports import config
from haulout.kube.transports.http import HttpTransport
from haulout_sandbox.apiserver import ApiServer, JsonObject
from support.apiserver.requests import request_json
from support.builders.crds import DEFAULT_CRD, RULE_CRD, VALUE_CRD
from support.expectations.eventually import eventually

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
OURS = (
    nodemaintenance.custom_resource_definition(),
    maintenancenotice.definition(),
    maintenancerecord.custom_resource_definition(),
    machinemaintenance.definition(),
)
NODE_MAINTENANCE, NOTICE, RECORD, MACHINE = OURS
START, END = "2026-05-01T10:00:00Z", "2026-05-01T12:00:00Z"

SPECS: tuple[tuple[JsonObject, tuple[JsonObject, ...]], ...] = (
    (
        NODE_MAINTENANCE,
        (
            {"nodeName": "n1"},
            {"nodeName": "n1", "reason": "disks", "drain": {"timeout": "1h30m", "order": [], "unknown": 1}},
            {},
            {"nodeName": 1},
            {"nodeName": "n1", "drain": {"timeout": "soon"}},
            {"nodeName": "n1", "drain": []},
            {"nodeName": "n1", "reason": None},
        ),
    ),
    (
        NOTICE,
        (
            {"nodeName": "n1", "source": "test", "kind": "Reboot", "start": START, "end": END},
            {"providerID": "aws:///a/i-1", "source": "test", "kind": "Reboot", "start": START},
            {"source": "test", "kind": "Reboot", "start": START},
            {"nodeName": "n1", "source": "test", "kind": "Reboot", "start": END, "end": START},
            {"nodeName": "n1", "source": "test", "kind": "Reboot", "start": END, "deadline": START},
            {"nodeName": "n1", "source": "test", "kind": "Reboot", "start": "soon"},
            {"nodeName": "n1", "source": "test", "kind": "Nonsense"},
            {"nodeName": "n1", "source": "A" * 300, "kind": "Reboot"},
            {"nodeName": "n1"},
        ),
    ),
    (
        MACHINE,
        (
            {"maintenancescheduled": True, "machineid": "i", "machinelink": "m"},
            {"maintenancescheduled": "yes", "machineid": "i", "machinelink": "m"},
            {"machineid": "i"},
        ),
    ),
    (
        VALUE_CRD,
        (
            *({"whole": it} for it in (1, 1.0, 1.5, "1", True, None)),
            *({"whole32": it} for it in (2**31 - 1, 2**31, True)),
            *({"number": it} for it in (1, 1.5, "1")),
            *({"text": it} for it in ("", 1)),
            *({"choice": it} for it in ("b", "a")),
            *({"short": it} for it in ("abc", "abcd", "äöü")),
            *({"long": it} for it in ("abc", "ab", "äö")),
            *({"shaped": it} for it in ("a", "A", "a\n")),
            *({"ranged": it} for it in (0, 1, 10, 11)),
            *({"between": it} for it in (0, 0.1, 1.5)),
            *({"fives": it} for it in (5, 7)),
            *({"few": it} for it in ([], ["a"], ["a", 1], ["a", "b", "c"])),
            *({"counts": it} for it in ({}, {"a": 1}, {"a": 0}, {"a": 1, "b": 1, "c": 1})),
            *({"when": it} for it in (START, "2024-01-01T00:00:00.5+02:00", "2024-01-01", 5)),
            *({"day": it} for it in ("2024-01-01", "2024-13-01")),
            *({"span": it} for it in ("1h30m", "soon")),
            *({"either": it} for it in (1, "a", True)),
            *({"percent": it} for it in (1, "5%", "5")),
            *({"nullable": it} for it in ("a", None)),
            *({"set": it} for it in (["a", "b"], ["a", "a"])),
            *({"named": it} for it in ([{"name": "a"}], [{"name": "a"}, {"name": "a"}], [{"value": 1}])),
            *({"ports": [{"port": 1}, {"port": it}]} for it in (1, 2)),
            *({"nested": it} for it in ({}, {"a": "x"}, {"a": "x", "b": {"c": "y"}}, {"a": "x", "b": {}})),
            *({"anyOf": it} for it in ({}, {"x": "a"}, {"y": 1}, {"y": 5})),
            *({"oneOf": it} for it in ({}, {"x": "a"}, {"x": "a", "y": 1})),
            *({"allOf": it} for it in (6, 7, 4)),
            *({"negated": it} for it in ("good", "bad")),
        ),
    ),
    (
        RULE_CRD,
        (
            *({"min": 1, "max": it} for it in (0, 1)),
            *({"since": START, "until": it} for it in (END, "2019-01-01T00:00:00Z")),
            *({"limit": "1h", "step": it} for it in ("59m", "2h")),
            *({"options": it} for it in ({"a": "x"}, {"a": "boom"}, {"b": "x"}, {})),
            *({"labels": {"a": it}} for it in ("abc", "xyz")),
        ),
    ),
    (DEFAULT_CRD, ({}, {"mode": None}, {"count": None}, {"list": [{}]}, {"nulls": {"n": None}})),
)
OBJECTS: tuple[tuple[JsonObject, JsonObject], ...] = (
    *((definition, {"spec": spec}) for definition, specs in SPECS for spec in specs),
    (NODE_MAINTENANCE, {"metadata": {"name": "No Name"}, "spec": {"nodeName": "n1"}}),
    (NODE_MAINTENANCE, {"metadata": {"labels": {"a": 1}}, "spec": {"nodeName": "n1"}}),
    (NODE_MAINTENANCE, {"metadata": {"finalizers": ["foregroundDeleteNodeMaintenance"]}, "spec": {"nodeName": "n1"}}),
    (NODE_MAINTENANCE, {"kind": "Other", "spec": {"nodeName": "n1"}}),
    (RECORD, {"entries": []}),
    (RECORD, {"entries": "none"}),
    (RULE_CRD, {"metadata": {"name": "x"}, "spec": {}}),
)


@pytest.fixture(scope="module")
def own_control_plane() -> Iterator[ControlPlane]:
    with ControlPlane() as cluster:
        yield cluster


@pytest.mark.real_time
async def test_same_custom_resources_are_accepted(own_control_plane: ControlPlane) -> None:
    clock = RealClock()
    real = HttpTransport(config.load(kubeconfig=str(own_control_plane.kubeconfig())), clock=clock)
    servers = (real, ApiServer(clock).transport("admin"))
    try:
        for definition in (*OURS, VALUE_CRD, RULE_CRD, DEFAULT_CRD):
            for server in servers:
                code, response = await request_json(server, "POST", DEFINITIONS, definition)
                assert code == 201, response
        for server in servers:
            for definition in (*OURS, VALUE_CRD, RULE_CRD, DEFAULT_CRD):
                await eventually(clock, partial(is_served, server, definition))
        different = []
        for definition, obj in OBJECTS:
            codes = await asyncio.gather(*(create(server, definition, obj) for server in servers))
            if (codes[0] == 201) is not (codes[1] == 201):
                different.append(f"{definition['metadata']['name']} {obj}: {codes[0]}, here {codes[1]}")
        assert not different, "\n".join(different)
    finally:
        await real.close()


async def is_served(server: Transport, definition: JsonObject) -> bool:
    return await create(server, definition, {"spec": {}}) != 404


async def create(server: Transport, definition: JsonObject, obj: JsonObject) -> int:
    """Try to create an object; return the status code."""
    spec = definition["spec"]
    version, names = spec["versions"][0]["name"], spec["names"]
    place = f"namespaces/default/{names['plural']}" if spec["scope"] == "Namespaced" else names["plural"]
    whole = {"apiVersion": f"{spec['group']}/{version}", "kind": names["kind"], "metadata": {}} | obj
    whole["metadata"] = {"name": "o"} | whole["metadata"]
    code, _ = await request_json(server, "POST", f"/apis/{spec['group']}/{version}/{place}", whole, dryRun="All")
    return code
