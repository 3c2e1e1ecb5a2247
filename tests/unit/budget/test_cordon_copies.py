"""A copy of a cordon mark follows the mark, and never stands in the way of a maintenance."""

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
    """One controller that cordons a node and keeps a copy of its mark."""

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
        """Cordon a node, and copy its mark."""
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


async def test_the_copy_restores_a_mark_that_is_lost(clock: Clock) -> None:
    api = an_api_server(clock)
    keeper = await CordonController(api, clock).load()
    held = await keeper.cordon()
    lost = await keeper.write(without_marks())
    await keeper.copies.sync(lost)
    successor = await CordonController(api, clock).load()
    restored = await keeper.write(cordon.repair(lost, (OWNER,), copy=successor.copies.get(lost)))
    assert cordon.cordon_of(restored) == cordon.cordon_of(held)


async def test_the_copy_of_a_node_that_somebody_uncordoned_is_removed(clock: Clock) -> None:
    api = an_api_server(clock)
    keeper = await CordonController(api, clock).load()
    await keeper.cordon()
    free = await keeper.write(without_marks() | {"spec": {"unschedulable": None}})
    await keeper.copies.sync(free)
    assert await keeper.keys() == []


async def test_a_node_that_is_gone_leaves_no_copy(clock: Clock) -> None:
    api = an_api_server(clock)
    keeper = await CordonController(api, clock).load()
    await keeper.cordon("n1")
    await keeper.cordon("n2")
    await keeper.client.delete(NODES, "n1")
    await keeper.copies.remove_node("n1")
    assert len(await keeper.keys()) == 1
    await keeper.client.delete(NODES, "n2")
    await CordonController(api, clock).load()
    assert await keeper.keys() == []


async def test_two_controllers_write_at_once_and_lose_nothing(clock: Clock) -> None:
    """Each believes that there is no ConfigMap yet."""
    api = an_api_server(clock)
    one, other = await CordonController(api, clock).load(), await CordonController(api, clock, "ESX").load()
    await one.cordon()
    await other.cordon()
    assert len(await one.keys()) == 2
    await one.copies.remove_owners(await one.node())
    assert len(await one.keys()) == 1


async def test_a_deleted_config_map_is_created_again_with_all_copies(clock: Clock) -> None:
    api = an_api_server(clock)
    keeper = await CordonController(api, clock).load()
    await keeper.cordon("n1")
    await keeper.client.delete(CONFIG_MAPS, CONFIG_MAP, namespace=HOME)
    await keeper.cordon("n2")
    assert len(await keeper.keys()) == 2


async def test_without_permission_nothing_fails(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    api = an_api_server(clock)
    keeper = CordonController(api, clock)

    async def refuse(*_: object, **__: object) -> None:
        raise Forbidden("forbidden", code=403)

    found: Iterable[Node] = (await keeper.client.list(NODES)).items
    with monkeypatch.context() as patched:
        for verb in ("get", "create"):
            patched.setattr(keeper.client, verb, refuse)
        await keeper.copies.load(lambda: found)
        await keeper.copies.sync(await _cordoned_node(CordonController(api, clock)))
    assert await keeper.keys() == []
    await keeper.copies.sync(await keeper.node())
    assert len(await keeper.keys()) == 1, "it is written as soon as that is granted"


async def _cordoned_node(keeper: CordonController) -> Node:
    change = cordon.acquire(await keeper.node(), OWNER, CordonRequest(), now=keeper.client.clock.now())
    return await keeper.write(change)


async def test_an_owner_that_held_the_node_first_tells_how_it_was_before(clock: Clock) -> None:
    """Another took the cordon of the first for a person's, as the mark of that was lost."""
    api = an_api_server(clock)
    keeper = await CordonController(api, clock).load()
    await keeper.cordon()
    await keeper.write(without_marks())
    later = await keeper.node()
    other = cordon.acquire(later, "NodeMaintenance/x", CordonRequest(), now=clock.now() + timedelta(minutes=1))
    both = await keeper.write(other)
    mistaken = cordon.cordon_of(both)
    assert mistaken is not None
    assert mistaken.before.unschedulable
    restored = cordon.cordon_of(await keeper.write(cordon.repair(both, (OWNER,), copy=keeper.copies.get(both))))
    assert restored is not None
    assert not restored.before.unschedulable
    assert sorted(restored.owners) == ["NodeMaintenance/x", OWNER]


def test_only_this_config_map_may_be_read_and_changed() -> None:
    create, rest = permissions(HOME)
    assert (create.verbs, create.names) == (("create",), ())
    assert (rest.verbs, rest.names) == (("get", "patch"), (CONFIG_MAP,))
