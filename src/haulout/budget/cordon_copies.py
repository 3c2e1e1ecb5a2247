"""Copies of cordon annotations outside the nodes: the state before a cordon survives the loss of both annotations.

    copies = CordonCopies(client, namespace="haulout", controller="profiles", owns=is_ours)
    await copies.load(nodes)              # once, before the first decision
    copies.get(node)                      # for `haulout.drain.cordon.repair`
    await copies.remove_owners(node)      # before the write that releases the node
    await copies.sync(node)               # after a write, or if nothing is to be written

Profiles and components have no object of their own for a copy, while a NodeMaintenance has its status. All their
copies are in one ConfigMap in the operator's namespace. It has one key per node and controller. Each write sets or
removes only keys of its own controller, so writers never conflict, and no write needs a precondition.

A copy follows the annotation. It is added after the node is cordoned, and removed before the node is released. So a
copy proves that its owners cordoned this node, by its UID, and did not release it. A process that dies between the two
writes leaves an annotation without a copy: its successor adds the copy. A copy that was deleted is added again by the
next write, or by the next process. A stale cache may bring a removed copy back: the next reconcile removes it again.

A copy protects against people who edit annotations. It must never stop a maintenance: if it cannot be written, that is
logged, and the annotations alone count.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import msgspec

from haulout.api.objects import Node, RawObject
from haulout.drain.cordon import Cordon, CordonOwnership, InvalidCordonAnnotation, StateBeforeCordon, cordon_of
from haulout.errors import AlreadyExists, Forbidden, KubeError, NotFound
from haulout.kube.client import Client
from haulout.kube.patches import merge_patch
from haulout.kube.rbac import Permission
from haulout.kube.slot_ledger import CONFIG_MAPS

log = logging.getLogger(__name__)

CONFIG_MAP = "haulout-cordons"
# The ConfigMap may be deleted after a create failed, and created after a patch did. A third attempt fails only if
# somebody does that all the time.
_MAX_ATTEMPTS = 3


def permissions(home: str) -> tuple[Permission, ...]:
    """Return the permissions to store copies, in the operator's namespace."""
    why = "store copies of cordon annotations"
    return (
        # RBAC cannot restrict `create` by name, because the object has none yet.
        Permission(("create",), CONFIG_MAPS.group, CONFIG_MAPS.plural, home, why),
        Permission(("get", "patch"), CONFIG_MAPS.group, CONFIG_MAPS.plural, home, why, names=(CONFIG_MAP,)),
    )


class CordonCopy(Cordon, frozen=True, kw_only=True):
    """A cordon with the name of its node."""

    node: str


def key_of(uid: str, controller: str) -> str:
    """Return the key of a copy in the ConfigMap."""
    return f"{uid}.{controller}"


def decode_copies(data: Mapping[str, str]) -> dict[str, CordonCopy]:
    """Return copies by key. A copy that cannot be decoded is ignored with a warning."""
    found: dict[str, CordonCopy] = {}
    for key, text in data.items():
        try:
            found[key] = msgspec.json.decode(text, type=CordonCopy)
        except (msgspec.ValidationError, msgspec.DecodeError) as error:
            log.warning("key %s of ConfigMap %s is ignored: %s", key, CONFIG_MAP, error)
    return found


async def holds_of(client: Client, node: Node, *, namespace: str) -> dict[str, CordonOwnership]:
    """Return the owners of a node's cordon by the copies of all controllers. Raise `KubeError`."""
    try:
        found = await client.get(CONFIG_MAPS, CONFIG_MAP, namespace=namespace)
    # Without copies nothing is known beyond the annotations. That is the state of an installation without this
    # permission.
    except (NotFound, Forbidden):
        return {}
    copies = decode_copies({key: text for key, text in found.data.items() if key.startswith(key_of(node.uid, ""))})
    return {owner: hold for copy in copies.values() for owner, hold in copy.owners.items()}


class CordonCopies:
    """The copies of one controller. `owns` tells which cordon owners belong to the controller."""

    def __init__(self, client: Client, *, namespace: str, controller: str, owns: Callable[[str], bool]) -> None:
        self._client = client
        self._namespace = namespace
        self._controller = controller
        self._owns = owns
        self._copies: dict[str, CordonCopy] | None = None  # by key; None: not loaded
        self._exists = False  # the ConfigMap exists
        self._loading = asyncio.Lock()
        self._is_failure_logged = False  # the last write failed, and that was logged

    async def load(self, nodes: Callable[[], Iterable[Node]]) -> None:
        """Read the copies once, and remove those of deleted nodes. Raise `KubeError` if they cannot be read."""
        if self._copies is None:
            async with self._loading:
                await self._load(nodes)

    async def _load(self, nodes: Callable[[], Iterable[Node]]) -> None:
        if self._copies is not None:
            return
        try:
            found = await self._client.get(CONFIG_MAPS, CONFIG_MAP, namespace=self._namespace)
        except NotFound:
            self._copies = {}
            return
        except Forbidden as error:
            self._log_failure(error)
            self._copies = {}
            return
        self._exists = True
        own = {key: text for key, text in found.data.items() if key.endswith(f".{self._controller}")}
        self._copies = decode_copies(own)
        known = {key_of(node.uid, self._controller) for node in nodes()}
        await self._write(dict.fromkeys(own.keys() - known))

    def get(self, node: Node) -> Cordon | None:
        return (self._copies or {}).get(self._key(node))

    async def remove_owners(self, node: Node, *, keep: Collection[str] = ()) -> None:
        """Remove the owners that release a node from its copy: all except `keep`."""
        copy = (self._copies or {}).get(self._key(node))
        if copy is None or copy.owners.keys() <= set(keep):
            return
        remaining = {owner: hold for owner, hold in copy.owners.items() if owner in keep}
        await self._write({self._key(node): msgspec.structs.replace(copy, owners=remaining) if remaining else None})

    async def sync(self, node: Node) -> None:
        """Update the copy of a node from its cordon annotation.

        While a cordoned node lacks owners that the copy contains, the copy stays unchanged: the owners are restored or
        removed first.
        """
        try:
            mark = cordon_of(node) or Cordon()
        # The copy is now the only source, so leave it as it is.
        except InvalidCordonAnnotation:
            return
        copies, key = self._copies or {}, self._key(node)
        known = copies.get(key)
        if known is not None and node.spec.unschedulable and not known.owners.keys() <= mark.owners.keys():
            return
        owners = {owner: hold for owner, hold in mark.owners.items() if self._owns(owner)}
        # Including copies for an earlier node of this name: its UID does not exist any more.
        desired: dict[str, CordonCopy | None] = {
            copy_key: None for copy_key, copy in copies.items() if copy.node == node.name
        }
        # These owners set neither taints nor labels; those in the annotation belong to a NodeMaintenance.
        before = StateBeforeCordon(unschedulable=mark.before.unschedulable)
        desired[key] = CordonCopy(node=node.name, owners=owners, before=before) if owners else None
        await self._write({copy_key: copy for copy_key, copy in desired.items() if copy != copies.get(copy_key)})

    async def remove_node(self, name: str) -> None:
        """Remove the copies of a deleted node."""
        await self._write({key: None for key, copy in (self._copies or {}).items() if copy.node == name})

    def _key(self, node: Node) -> str:
        return key_of(node.uid, self._controller)

    async def _write(self, changes: Mapping[str, CordonCopy | None]) -> None:
        """Set copies, and remove those that are None."""
        if not changes or self._copies is None:
            return
        # Before the request: other tasks write meanwhile.
        before, self._copies = self._copies, _apply(self._copies, changes)
        try:
            await self._patch({key: None if copy is None else _encode(copy) for key, copy in changes.items()})
        except KubeError as error:
            # Only these keys: other tasks may have written theirs meanwhile.
            self._copies = _apply(self._copies, {key: before.get(key) for key in changes})
            self._log_failure(error)
        else:
            self._is_failure_logged = False

    async def _patch(self, data: Mapping[str, str | None]) -> None:
        """Write keys. Create the ConfigMap if it is missing; others may create or delete it at the same time."""
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            try:
                if self._exists:
                    patch = merge_patch({"data": data})
                    await self._client.patch(CONFIG_MAPS, CONFIG_MAP, patch, namespace=self._namespace)
                elif self._copies:
                    await self._create()
            except (AlreadyExists, NotFound) as error:
                self._exists = isinstance(error, AlreadyExists)
                if attempt == _MAX_ATTEMPTS:
                    raise
            else:
                self._exists = self._exists or bool(self._copies)
                return

    async def _create(self) -> None:
        """Create the ConfigMap with all copies of this controller, since a deletion by others loses all of them."""
        data = {key: _encode(copy) for key, copy in (self._copies or {}).items()}
        metadata = {"name": CONFIG_MAP, "namespace": self._namespace}
        body: RawObject = {
            "apiVersion": CONFIG_MAPS.api_version,
            "kind": CONFIG_MAPS.kind,
            "metadata": metadata,
            "data": data,
        }
        await self._client.create(CONFIG_MAPS, body, namespace=self._namespace)

    def _log_failure(self, error: KubeError) -> None:
        level = logging.DEBUG if self._is_failure_logged else logging.WARNING
        self._is_failure_logged = True
        log.log(
            level,
            "cannot store copies of cordon annotations in ConfigMap %s/%s: %s",
            self._namespace,
            CONFIG_MAP,
            error,
        )


def _encode(copy: CordonCopy) -> str:
    return msgspec.json.encode(copy, order="sorted").decode()


def _apply(copies: Mapping[str, CordonCopy], changes: Mapping[str, Any]) -> dict[str, CordonCopy]:
    return {key: copy for key, copy in {**copies, **changes}.items() if copy is not None}
