"""A copy of a cordon mark follows the mark, and never stands in the way of a maintenance."""

from collections.abc import Iterable
from datetime import timedelta
from random import Random

import pytest

from haulout.budget.cordon_copies import CONFIG_MAP, CordonCopies, permissions
from haulout.core.clock import Clock
from haulout.drain import cordon
from haulout.drain.cordon import BACKUP, MARK, Wishes
from haulout.errors import Forbidden, NotFound
from haulout.kube.client import Client
from haulout.kube.ledger import LEDGERS
from haulout.kube.objects import Node, RawObject
from haulout.kube.patches import merge_patch
from haulout.kube.resources import NODES
from haulout_sandbox.apiserver import ApiServer
from support.builders import a_node

HOME, OWNER = "haulout", "profile/os"


class Keeper:
    """One controller that cordons a node and keeps a copy of its mark."""

    def __init__(self, api: ApiServer, clock: Clock, owner: str = OWNER) -> None:
        self.client = Client(api.transport(owner), clock=clock, random=Random(owner))
        self.owner = owner
        self.copies = CordonCopies(self.client, namespace=HOME, controller=owner.replace("/", "-"), owns=owner.__eq__)

    async def load(self) -> "Keeper":
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
        change = cordon.acquire(await self.node(name), self.owner, Wishes(), now=self.client.clock.now())
        node = await self.write(change, name)
        await self.copies.follow(node)
        return node

    async def keys(self) -> list[str]:
        """Return what the server has."""
        try:
            return sorted((await self.client.get(LEDGERS, CONFIG_MAP, namespace=HOME)).data)
        except NotFound:
            return []


def a_place(clock: Clock) -> ApiServer:
    api = ApiServer(clock, namespaces=[HOME])
    for name in ("n1", "n2"):
        api.put(a_node(name))
    return api


def without_marks() -> RawObject:
    return {"metadata": {"annotations": {MARK: None, BACKUP: None}}}


async def test_the_copy_restores_a_mark_that_is_lost(clock: Clock) -> None:
    api = a_place(clock)
    keeper = await Keeper(api, clock).load()
    held = await keeper.cordon()
    lost = await keeper.write(without_marks())
    await keeper.copies.follow(lost)
    successor = await Keeper(api, clock).load()
    restored = await keeper.write(cordon.repaired(lost, (OWNER,), copy=successor.copies.of(lost)))
    assert cordon.cordon_of(restored) == cordon.cordon_of(held)


async def test_the_copy_of_a_node_that_somebody_uncordoned_is_removed(clock: Clock) -> None:
    api = a_place(clock)
    keeper = await Keeper(api, clock).load()
    await keeper.cordon()
    free = await keeper.write(without_marks() | {"spec": {"unschedulable": None}})
    await keeper.copies.follow(free)
    assert await keeper.keys() == []


async def test_a_node_that_is_gone_leaves_no_copy(clock: Clock) -> None:
    api = a_place(clock)
    keeper = await Keeper(api, clock).load()
    await keeper.cordon("n1")
    await keeper.cordon("n2")
    await keeper.client.delete(NODES, "n1")
    await keeper.copies.forget("n1")
    assert len(await keeper.keys()) == 1
    await keeper.client.delete(NODES, "n2")
    await Keeper(api, clock).load()
    assert await keeper.keys() == []


async def test_two_controllers_write_at_once_and_lose_nothing(clock: Clock) -> None:
    """Each believes that there is no ConfigMap yet."""
    api = a_place(clock)
    one, other = await Keeper(api, clock).load(), await Keeper(api, clock, "ESX").load()
    await one.cordon()
    await other.cordon()
    assert len(await one.keys()) == 2
    await one.copies.drop(await one.node())
    assert len(await one.keys()) == 1


async def test_a_deleted_config_map_is_created_again_with_all_copies(clock: Clock) -> None:
    api = a_place(clock)
    keeper = await Keeper(api, clock).load()
    await keeper.cordon("n1")
    await keeper.client.delete(LEDGERS, CONFIG_MAP, namespace=HOME)
    await keeper.cordon("n2")
    assert len(await keeper.keys()) == 2


async def test_without_permission_nothing_fails(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    api = a_place(clock)
    keeper = Keeper(api, clock)

    async def refuse(*_: object, **__: object) -> None:
        raise Forbidden("forbidden", code=403)

    found: Iterable[Node] = (await keeper.client.list(NODES)).items
    with monkeypatch.context() as patched:
        for verb in ("get", "create"):
            patched.setattr(keeper.client, verb, refuse)
        await keeper.copies.load(lambda: found)
        await keeper.copies.follow(await _held(Keeper(api, clock)))
    assert await keeper.keys() == []
    await keeper.copies.follow(await keeper.node())
    assert len(await keeper.keys()) == 1, "it is written as soon as that is granted"


async def _held(keeper: Keeper) -> Node:
    change = cordon.acquire(await keeper.node(), OWNER, Wishes(), now=keeper.client.clock.now())
    return await keeper.write(change)


async def test_an_owner_that_held_the_node_first_tells_how_it_was_before(clock: Clock) -> None:
    """Another took the cordon of the first for a person's, as the mark of that was lost."""
    api = a_place(clock)
    keeper = await Keeper(api, clock).load()
    await keeper.cordon()
    await keeper.write(without_marks())
    later = await keeper.node()
    other = cordon.acquire(later, "NodeMaintenance/x", Wishes(), now=clock.now() + timedelta(minutes=1))
    both = await keeper.write(other)
    mistaken = cordon.cordon_of(both)
    assert mistaken is not None
    assert mistaken.before.unschedulable
    restored = cordon.cordon_of(await keeper.write(cordon.repaired(both, (OWNER,), copy=keeper.copies.of(both))))
    assert restored is not None
    assert not restored.before.unschedulable
    assert sorted(restored.owners) == ["NodeMaintenance/x", OWNER]


def test_only_this_config_map_may_be_read_and_changed() -> None:
    create, rest = permissions(HOME)
    assert (create.verbs, create.names) == (("create",), ())
    assert (rest.verbs, rest.names) == (("get", "patch"), (CONFIG_MAP,))
