"""Copies of cordon annotations follow the annotation and never block a maintenance."""

from collections.abc import Iterable
from datetime import timedelta
from random import Random

import pytest

from haulout.api.objects import Node, RawObject
from haulout.api.resources import NODES
from haulout.budget.cordon_copies import CONFIG_MAP, CordonCopies, permissions
from haulout.core.clock import Clock
from haulout.drain import cordon
from haulout.drain.cordon import CORDON_ANNOTATION, CORDON_BACKUP_ANNOTATION, CordonRequest
from haulout.errors import Forbidden, NotFound
from haulout.kube.client import Client
from haulout.kube.patches import merge_patch
from haulout.kube.slot_ledger import CONFIG_MAPS
from haulout_sandbox.apiserver import ApiServer
from support.builders.objects import a_node

HOME, OWNER = "haulout", "profile/os"


class CordonController:
    """A controller that cordons a node and keeps a copy of its cordon annotation."""

    def __init__(self, api: ApiServer, clock: Clock, owner: str = OWNER) -> None:
        self.client = Client(api.transport(owner), clock=clock, random=Random(owner))
        self.owner = owner
        self.copies = CordonCopies(self.client, namespace=HOME, controller=owner.replace("/", "-"), owns=owner.__eq__)

    async def load(self) -> "CordonController":
        """Read the copies."""
        found = await self.client.list(NODES)
        await self.copies.load(lambda: found.items)
        return self

    async def node(self, name: str = "n1") -> Node:
        """Return a node."""
        return await self.client.get(NODES, name)

    async def write(self, change: RawObject | None, name: str = "n1") -> Node:
        """Change a node."""
        assert change is not None
        return await self.client.patch(NODES, name, merge_patch(change))

    async def cordon(self, name: str = "n1") -> Node:
        """Cordon a node, and copy its cordon annotation."""
        change = cordon.acquire(await self.node(name), self.owner, CordonRequest(), now=self.client.clock.now())
        node = await self.write(change, name)
        await self.copies.sync(node)
        return node

    async def keys(self) -> list[str]:
        """Return what the server has."""
        try:
            return sorted((await self.client.get(CONFIG_MAPS, CONFIG_MAP, namespace=HOME)).data)
        except NotFound:
            return []


def an_api_server(clock: Clock) -> ApiServer:
    api = ApiServer(clock, namespaces=[HOME])
    for name in ("n1", "n2"):
        api.put(a_node(name))
    return api


def without_marks() -> RawObject:
    return {"metadata": {"annotations": {CORDON_ANNOTATION: None, CORDON_BACKUP_ANNOTATION: None}}}


async def test_cordon_copy_restores_a_lost_cordon_annotation(clock: Clock) -> None:
    api = an_api_server(clock)
    controller = await CordonController(api, clock).load()
    held = await controller.cordon()
    lost = await controller.write(without_marks())
    await controller.copies.sync(lost)
    successor = await CordonController(api, clock).load()
    restored = await controller.write(cordon.repair(lost, (OWNER,), copy=successor.copies.get(lost)))
    assert cordon.cordon_of(restored) == cordon.cordon_of(held)


async def test_cordon_copy_is_removed_when_the_node_was_uncordoned_by_others(clock: Clock) -> None:
    api = an_api_server(clock)
    controller = await CordonController(api, clock).load()
    await controller.cordon()
    free = await controller.write(without_marks() | {"spec": {"unschedulable": None}})
    await controller.copies.sync(free)
    assert await controller.keys() == []


async def test_cordon_copy_is_removed_with_its_node(clock: Clock) -> None:
    api = an_api_server(clock)
    controller = await CordonController(api, clock).load()
    await controller.cordon("n1")
    await controller.cordon("n2")
    await controller.client.delete(NODES, "n1")
    await controller.copies.remove_node("n1")
    assert len(await controller.keys()) == 1
    await controller.client.delete(NODES, "n2")
    await CordonController(api, clock).load()
    assert await controller.keys() == []


async def test_two_controllers_that_create_the_config_map_at_once_lose_no_copy(clock: Clock) -> None:
    """Each believes that there is no ConfigMap yet."""
    api = an_api_server(clock)
    one, other = await CordonController(api, clock).load(), await CordonController(api, clock, "ESX").load()
    await one.cordon()
    await other.cordon()
    assert len(await one.keys()) == 2
    await one.copies.remove_owners(await one.node())
    assert len(await one.keys()) == 1


async def test_deleted_config_map_is_recreated_with_all_copies(clock: Clock) -> None:
    api = an_api_server(clock)
    controller = await CordonController(api, clock).load()
    await controller.cordon("n1")
    await controller.client.delete(CONFIG_MAPS, CONFIG_MAP, namespace=HOME)
    await controller.cordon("n2")
    assert len(await controller.keys()) == 2


async def test_missing_permission_for_the_config_map_fails_nothing(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = an_api_server(clock)
    controller = CordonController(api, clock)

    async def refuse(*_: object, **__: object) -> None:
        raise Forbidden("forbidden", code=403)

    found: Iterable[Node] = (await controller.client.list(NODES)).items
    with monkeypatch.context() as patched:
        for verb in ("get", "create"):
            patched.setattr(controller.client, verb, refuse)
        await controller.copies.load(lambda: found)
        await controller.copies.sync(await _cordoned_node(CordonController(api, clock)))
    assert await controller.keys() == []
    await controller.copies.sync(await controller.node())
    assert len(await controller.keys()) == 1, "the copy is written once the permission is granted"


async def _cordoned_node(controller: CordonController) -> Node:
    change = cordon.acquire(await controller.node(), OWNER, CordonRequest(), now=controller.client.clock.now())
    return await controller.write(change)


async def test_cordon_copy_of_the_first_owner_restores_the_state_before_the_cordon(clock: Clock) -> None:
    """The first owner's annotation was lost, so the second took its cordon for a manual one."""
    api = an_api_server(clock)
    controller = await CordonController(api, clock).load()
    await controller.cordon()
    await controller.write(without_marks())
    later = await controller.node()
    other = cordon.acquire(later, "NodeMaintenance/x", CordonRequest(), now=clock.now() + timedelta(minutes=1))
    both = await controller.write(other)
    mistaken = cordon.cordon_of(both)
    assert mistaken is not None
    assert mistaken.before.unschedulable
    restored = cordon.cordon_of(await controller.write(cordon.repair(both, (OWNER,), copy=controller.copies.get(both))))
    assert restored is not None
    assert not restored.before.unschedulable
    assert sorted(restored.owners) == ["NodeMaintenance/x", OWNER]


def test_permissions_are_limited_to_one_config_map() -> None:
    create, rest = permissions(HOME)
    assert (create.verbs, create.names) == (("create",), ())
    assert (rest.verbs, rest.names) == (("get", "patch"), (CONFIG_MAP,))
