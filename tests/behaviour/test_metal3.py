"""Hosts of Machines that are approved for maintenance are off, and on again after it.

The controller has the rights that are declared and no others. The numbers in docstrings are those of the acceptance
cases in the specification of the runtime-extension-maintenance-controller.
"""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from haulout.api.clusterapi import BARE_METAL_HOSTS, ENABLED, MAINTENANCE, OUR_REBOOT_ANNOTATION, REBOOT_ANNOTATION
from haulout.api.objects import RawObject
from haulout.api.resources import Resource
from haulout.controllers.clusterapi.host_power import Metal3Settings
from haulout.kube.client import Client
from haulout.kube.recorder import SERIES_PAUSE
from haulout_sandbox.apiserver import User
from support.clusters.backends import ClusterBackend
from support.clusters.live_cluster import create_or_patch
from support.platforms.metal3 import (
    FOREIGN_REBOOT,
    HOST,
    MACHINES,
    NODE,
    BareMetalCluster,
    a_bare_metal_cluster,
    a_host,
    a_machine,
    roles,
)

SECONDS = timedelta(seconds=3)
FINALIZER = "test.haulout.dev/hold"
USER = User("metal3-hub", groups=("system:authenticated",))


@pytest.fixture
async def bare_metal(cluster: ClusterBackend) -> AsyncIterator[BareMetalCluster]:
    """Yield a cluster with Machines and hosts, in which nothing is left behind."""
    client = await cluster.client()
    for role in roles(USER.name, {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": USER.name}):
        group, _, version = role["apiVersion"].partition("/")
        is_namespaced = role["kind"] in ("Role", "RoleBinding")
        await create_or_patch(
            client, Resource(group, version, f"{role['kind'].lower()}s", role["kind"], is_namespaced, RawObject), role
        )
    found = await a_bare_metal_cluster(client, cluster.namespace)
    yield found
    for resource in (MACHINES, BARE_METAL_HOSTS):
        for item in (await client.list(resource.with_model(RawObject), namespace=found.namespace)).items:
            name = item["metadata"]["name"]
            if item["metadata"].get("finalizers"):
                await found.change(resource, name, metadata={"finalizers": None})
            if "deletionTimestamp" not in item["metadata"]:
                await client.delete(resource, name, namespace=found.namespace)


@pytest.fixture
async def hub(cluster: ClusterBackend) -> Client:
    """Return the client of the Metal3 controller."""
    return await cluster.client_of(USER)


async def assert_stays_on(bare_metal: BareMetalCluster) -> None:
    await bare_metal.clock.sleep(SECONDS)
    assert not await bare_metal.is_powered_off()


async def test_host_is_powered_off_from_approval_until_its_withdrawal(
    bare_metal: BareMetalCluster, hub: Client
) -> None:
    """Cases 14, 15 and 16."""
    await bare_metal.create(a_host(), a_machine())
    async with bare_metal.running_controller(hub):
        await bare_metal.cordon()
        await bare_metal.label("requested")
        await assert_stays_on(bare_metal)
        await bare_metal.approve()
        await bare_metal.eventually(bare_metal.annotations, becomes={OUR_REBOOT_ANNOTATION: ""})
        await bare_metal.label(None)
        await bare_metal.eventually(bare_metal.is_powered_off, becomes=False)
        host, machine = f"{bare_metal.namespace}/{HOST}", f"{bare_metal.namespace}/m1"
        await bare_metal.eventually(
            bare_metal.event_notes,
            becomes=[
                f"BareMetalHost {host} is powered off: Machine {machine} is approved for maintenance",
                f"BareMetalHost {host} may be powered on again: Machine {machine} is not approved for maintenance",
            ],
        )


async def test_host_stays_on_until_its_node_is_cordoned_and_an_event_explains_it(
    bare_metal: BareMetalCluster, hub: Client
) -> None:
    await bare_metal.create(a_host(), a_machine())
    async with bare_metal.running_controller(hub):
        await bare_metal.approve()
        reason = f"node {NODE} of Machine {bare_metal.namespace}/m1 is not cordoned"
        note = f"BareMetalHost {bare_metal.namespace}/{HOST} is not powered off yet: {reason}"
        await bare_metal.eventually(bare_metal.event_notes, becomes=[note])
        await assert_stays_on(bare_metal)
        await bare_metal.cordon()
        await bare_metal.eventually(bare_metal.is_powered_off)
        await bare_metal.cordon(is_cordoned=False)
        await bare_metal.clock.sleep(SECONDS)
        assert await bare_metal.is_powered_off(), "somebody may have their hands in it"


async def test_annotations_of_others_are_kept(bare_metal: BareMetalCluster, hub: Client) -> None:
    """Case 19."""
    foreign = {FOREIGN_REBOOT: '{"mode":"hard"}', REBOOT_ANNOTATION: "", "inspect.metal3.io": "disabled"}
    await bare_metal.create(a_host(meta={"annotations": foreign}), a_machine())
    await bare_metal.cordon()
    async with bare_metal.running_controller(hub):
        await bare_metal.approve()
        await bare_metal.eventually(bare_metal.annotations, becomes={**foreign, OUR_REBOOT_ANNOTATION: ""})
        await bare_metal.label(None)
        await bare_metal.eventually(bare_metal.annotations, becomes=foreign)


async def test_host_is_powered_on_when_its_approved_machine_is_deleted(
    bare_metal: BareMetalCluster, hub: Client
) -> None:
    """Case 29: as soon as the deletion has begun, since pods cannot end on a node that is off."""
    await bare_metal.create(a_host(), a_machine(meta={"finalizers": [FINALIZER]}))
    await bare_metal.cordon()
    async with bare_metal.running_controller(hub):
        await bare_metal.approve()
        await bare_metal.eventually(bare_metal.is_powered_off)
        await bare_metal.delete()
        await bare_metal.eventually(bare_metal.is_powered_off, becomes=False)


async def test_leftover_power_off_annotations_are_removed_at_start(bare_metal: BareMetalCluster, hub: Client) -> None:
    """Case 29: one Machine is gone, another has lost its host to a third."""
    left = {"annotations": {OUR_REBOOT_ANNOTATION: "", FOREIGN_REBOOT: ""}}
    other = a_machine("m2", host="rack7-u13", labels={ENABLED: "true", MAINTENANCE: "approved"})
    await bare_metal.create(a_host(meta=left), a_host("rack7-u13", used_by="m3", meta=left), other)
    async with bare_metal.running_controller(hub):
        await bare_metal.eventually(lambda: bare_metal.annotations(HOST), becomes={FOREIGN_REBOOT: ""})
        await bare_metal.eventually(lambda: bare_metal.annotations("rack7-u13"), becomes={FOREIGN_REBOOT: ""})
        reason = f"it is used by Metal3Machine {bare_metal.namespace}/m3, not by Machine {bare_metal.namespace}/m2"
        note = f"BareMetalHost {bare_metal.namespace}/rack7-u13 may be powered on again: {reason}"
        await bare_metal.eventually(lambda: bare_metal.event_notes("HostPowerOffWithdrawn"), becomes=[note])


async def test_host_is_powered_on_when_its_machine_opts_out(bare_metal: BareMetalCluster, hub: Client) -> None:
    await bare_metal.create(a_host(), a_machine())
    await bare_metal.cordon()
    async with bare_metal.running_controller(hub):
        await bare_metal.approve()
        await bare_metal.eventually(bare_metal.is_powered_off)
        await bare_metal.label(None, key=ENABLED)
        await bare_metal.eventually(bare_metal.is_powered_off, becomes=False)


@pytest.mark.parametrize("enabled", ["True", "1", None])
async def test_host_of_a_machine_that_is_not_enabled_stays_on_unless_unguarded(
    bare_metal: BareMetalCluster, hub: Client, enabled: str | None
) -> None:
    """Case 17, and the setting that makes it as the runtime-extension-maintenance-controller was."""
    labels = {MAINTENANCE: "approved"} | ({ENABLED: enabled} if enabled else {})
    await bare_metal.create(a_host(state=""), a_machine(labels=labels))
    async with bare_metal.running_controller(hub):
        await assert_stays_on(bare_metal)
    async with bare_metal.running_controller(hub, Metal3Settings(unguarded=True)):
        await bare_metal.eventually(bare_metal.is_powered_off)


async def test_invalid_provider_id_is_reported_once(bare_metal: BareMetalCluster, hub: Client) -> None:
    await bare_metal.create(
        a_machine(providerID="metal3://8f2a"), a_machine("m2", providerID="aws:///eu-central-1a/i-1")
    )
    async with bare_metal.running_controller(hub):
        for value in ("requested", "approved", "requested"):
            await bare_metal.label(value)
            await bare_metal.clock.sleep(SECONDS / 3)
        expected = "found spec.providerID 'metal3://8f2a', expected metal3://NAMESPACE/HOST/NAME"
        await bare_metal.eventually(bare_metal.event_notes, becomes=[expected])
        await bare_metal.clock.sleep(SERIES_PAUSE + SECONDS)
        assert await bare_metal.event_notes() == [expected]
