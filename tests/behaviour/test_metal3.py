"""Hosts of Machines that are approved for maintenance are off, and on again after it.

The controller has the rights that are declared and no others. The numbers in docstrings are those of the acceptance
cases in the specification of the runtime-extension-maintenance-controller.
"""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from haulout.hub.hosts import Metal3Settings
from haulout.kinds.clusterapi import ENABLED, MAINTENANCE
from haulout.kinds.metal3 import HOSTS, REBOOT, REBOOT_OURS
from haulout.kube.client import Client
from haulout.kube.events import SERIES_PAUSE
from haulout.kube.objects import RawObject
from haulout.kube.resources import Resource
from haulout_sandbox.apiserver import User
from support.backends import Cluster
from support.bare_metal import FOREIGN, HOST, MACHINES, NODE, Yard, a_host, a_machine, a_yard, roles
from support.live import put_up

SECONDS = timedelta(seconds=3)
FINALIZER = "test.haulout.dev/hold"
USER = User("metal3-hub", groups=("system:authenticated",))


@pytest.fixture
async def yard(cluster: Cluster) -> AsyncIterator[Yard]:
    """Yield a cluster with Machines and hosts, in which nothing is left behind."""
    client = await cluster.client()
    for role in roles(USER.name, {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": USER.name}):
        group, _, version = role["apiVersion"].partition("/")
        is_namespaced = role["kind"] in ("Role", "RoleBinding")
        await put_up(
            client, Resource(group, version, f"{role['kind'].lower()}s", role["kind"], is_namespaced, RawObject), role
        )
    found = await a_yard(client, cluster.namespace)
    yield found
    for resource in (MACHINES, HOSTS):
        for it in (await client.list(resource.of(RawObject), namespace=found.namespace)).items:
            name = it["metadata"]["name"]
            if it["metadata"].get("finalizers"):
                await found.change(resource, name, metadata={"finalizers": None})
            if "deletionTimestamp" not in it["metadata"]:
                await client.delete(resource, name, namespace=found.namespace)


@pytest.fixture
async def hub(cluster: Cluster) -> Client:
    """Return the client of who sees to hosts."""
    return await cluster.client_of(USER)


async def stays_on(yard: Yard) -> None:
    await yard.clock.sleep(SECONDS)
    assert not await yard.is_off()


async def test_a_host_is_off_from_the_approval_until_it_is_taken_back(yard: Yard, hub: Client) -> None:
    """Cases 14, 15 and 16."""
    await yard.put(a_host(), a_machine())
    async with yard.operated(hub):
        await yard.cordon()
        await yard.label("requested")
        await stays_on(yard)
        await yard.approve()
        await yard.eventually(yard.annotations, becomes={REBOOT_OURS: ""})
        await yard.label(None)
        await yard.eventually(yard.is_off, becomes=False)
        host, machine = f"{yard.namespace}/{HOST}", f"{yard.namespace}/m1"
        await yard.eventually(
            yard.told,
            becomes=[
                f"BareMetalHost {host} is powered off: Machine {machine} is approved for maintenance",
                f"BareMetalHost {host} may be on again: Machine {machine} is not approved for maintenance",
            ],
        )


async def test_a_host_stays_on_until_its_node_is_cordoned_and_that_is_told(yard: Yard, hub: Client) -> None:
    await yard.put(a_host(), a_machine())
    async with yard.operated(hub):
        await yard.approve()
        waits = f"node {NODE} of Machine {yard.namespace}/m1 is not cordoned"
        note = f"BareMetalHost {yard.namespace}/{HOST} is not powered off yet: {waits}"
        await yard.eventually(yard.told, becomes=[note])
        await stays_on(yard)
        await yard.cordon()
        await yard.eventually(yard.is_off)
        await yard.cordon(is_cordoned=False)
        await yard.clock.sleep(SECONDS)
        assert await yard.is_off(), "somebody may have their hands in it"


async def test_what_is_there_of_others_is_never_touched(yard: Yard, hub: Client) -> None:
    """Case 19."""
    foreign = {FOREIGN: '{"mode":"hard"}', REBOOT: "", "inspect.metal3.io": "disabled"}
    await yard.put(a_host(meta={"annotations": foreign}), a_machine())
    await yard.cordon()
    async with yard.operated(hub):
        await yard.approve()
        await yard.eventually(yard.annotations, becomes={**foreign, REBOOT_OURS: ""})
        await yard.label(None)
        await yard.eventually(yard.annotations, becomes=foreign)


async def test_a_host_is_on_again_when_its_machine_is_deleted_while_approved(yard: Yard, hub: Client) -> None:
    """Case 29: as soon as the deletion has begun, since pods cannot end on a node that is off."""
    await yard.put(a_host(), a_machine(meta={"finalizers": [FINALIZER]}))
    await yard.cordon()
    async with yard.operated(hub):
        await yard.approve()
        await yard.eventually(yard.is_off)
        await yard.delete()
        await yard.eventually(yard.is_off, becomes=False)


async def test_what_was_left_behind_while_nobody_looked_is_swept_up(yard: Yard, hub: Client) -> None:
    """Case 29: one Machine is gone, another has lost its host to a third."""
    left = {"annotations": {REBOOT_OURS: "", FOREIGN: ""}}
    other = a_machine("m2", host="rack7-u13", labels={ENABLED: "true", MAINTENANCE: "approved"})
    await yard.put(a_host(meta=left), a_host("rack7-u13", used_by="m3", meta=left), other)
    async with yard.operated(hub):
        await yard.eventually(lambda: yard.annotations(HOST), becomes={FOREIGN: ""})
        await yard.eventually(lambda: yard.annotations("rack7-u13"), becomes={FOREIGN: ""})
        why = f"it is used by Metal3Machine {yard.namespace}/m3, not by Machine {yard.namespace}/m2"
        note = f"BareMetalHost {yard.namespace}/rack7-u13 may be on again: {why}"
        await yard.eventually(lambda: yard.told("HostReleased"), becomes=[note])


async def test_a_host_is_on_again_when_its_machine_opts_out(yard: Yard, hub: Client) -> None:
    await yard.put(a_host(), a_machine())
    await yard.cordon()
    async with yard.operated(hub):
        await yard.approve()
        await yard.eventually(yard.is_off)
        await yard.label(None, key=ENABLED)
        await yard.eventually(yard.is_off, becomes=False)


@pytest.mark.parametrize("enabled", ["True", "1", None])
async def test_a_machine_that_is_not_enabled_has_its_host_on_unless_it_is_to_be_as_before(
    yard: Yard, hub: Client, enabled: str | None
) -> None:
    """Case 17, and the setting that makes it as the runtime-extension-maintenance-controller was."""
    labels = {MAINTENANCE: "approved"} | ({ENABLED: enabled} if enabled else {})
    await yard.put(a_host(state=""), a_machine(labels=labels))
    async with yard.operated(hub):
        await stays_on(yard)
    async with yard.operated(hub, Metal3Settings(unguarded=True)):
        await yard.eventually(yard.is_off)


async def test_a_provider_id_that_names_no_host_is_told_once(yard: Yard, hub: Client) -> None:
    await yard.put(a_machine(providerID="metal3://8f2a"), a_machine("m2", providerID="aws:///eu-central-1a/i-1"))
    async with yard.operated(hub):
        for value in ("requested", "approved", "requested"):
            await yard.label(value)
            await yard.clock.sleep(SECONDS / 3)
        expected = "found spec.providerID 'metal3://8f2a', expected metal3://NAMESPACE/HOST/NAME"
        await yard.eventually(yard.told, becomes=[expected])
        await yard.clock.sleep(SERIES_PAUSE + SECONDS)
        assert await yard.told() == [expected]
