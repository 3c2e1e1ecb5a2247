"""What profiles see of a cluster: all nodes, with indexes, in which our own writes already count.

A cache follows the nodes; `note` takes what a write of ours was answered with. Of two states of a node the newer
counts; and an answer brings no node back of which the watch has told that it is gone. So a decision that follows a
write rests on it, though the watch may not have told yet: this is how limits on the number of nodes in maintenance hold
within one process. (Between processes it is the ledger, `haulout.kube.ledger`.)

A change is told with its topics: what about it may concern other nodes. Most states of a node differ in nothing that
anybody here reads, since a kubelet has only said again that all is well: these are taken, and not told.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime, timedelta

import msgspec

from haulout.budget import away
from haulout.budget.limits import Group
from haulout.budget.outages import Outages
from haulout.budget.room import Sizes
from haulout.core.clock import Clock
from haulout.kube.cache import revision
from haulout.kube.objects import Node
from haulout.kube.store import Store
from haulout.profiles import begun, fitting, topics
from haulout.profiles.plugin import DATA_ANNOTATION, PROFILE_LABEL, STATE_LABEL, Entry, NodeSight, State

_BY_STATE = "state"
_BY_SERVICE = "service"
_OUT = "out"

Read = Callable[[str], Mapping[str, Entry]]
Changed = Callable[[str, frozenset[str], bool], object]  # the node, its topics, and whether it was our own write


class _Row(NodeSight):
    """A node in the store."""

    __slots__ = ()

    @property
    def key(self) -> str:
        """Its name."""
        return self.node.name

    @property
    def uid(self) -> str:
        """What tells it from a later node of the same name."""
        return self.node.uid

    @property
    def resource_version(self) -> str:
        """Which state of it this is."""
        return self.node.resource_version


class NodeSights:
    """The nodes; `read` makes entries of a data annotation, `changed` hears of each change.

    Whoever follows them gives a `clock`; who takes one look has none.
    """

    def __init__(self, read: Read, *, changed: Changed, clock: Clock | None = None) -> None:
        self._read = read
        self._changed = changed
        self._store: Store[_Row] = Store({_BY_STATE: _where, _BY_SERVICE: _service})
        self._sizes = Sizes(lambda: (row.node for row in self._store.all()))
        self._outages = Outages(clock)
        self._with_label: dict[str, dict[str, _Row]] = {}  # for labels that were asked for

    # For readers

    def get(self, name: str) -> NodeSight | None:
        """Return a node."""
        return self._store.get(name)

    def all(self) -> Collection[NodeSight]:
        """Return all nodes."""
        return self._store.all()

    def in_state(self, state: State) -> Collection[NodeSight]:
        """Return the nodes whose state label says so; in maintenance are also those that are on their way there."""
        return self._store.by(_BY_STATE, state)

    def with_label(self, key: str) -> Collection[NodeSight]:
        """Return the nodes that have a label; from the first time on an index answers."""
        if key not in self._with_label:
            rows = self._store.all()
            self._with_label[key] = {row.key: row for row in rows if key in row.node.metadata.labels}
        return self._with_label[key].values()

    # For budgets

    def find(self, name: str) -> Node | None:
        """Return a node."""
        row = self._store.get(name)
        return None if row is None else row.node

    def candidates(self) -> Iterable[Node]:
        """Return the nodes that are out of service, or may be."""
        return [row.node for row in self._store.by(_BY_SERVICE, _OUT)]

    def size(self, group: Group) -> int:
        """Return how many nodes there are in a group."""
        return self._sizes.of(group)

    def sure_in(self, node: Node, now: datetime) -> timedelta | None:
        """Return in what time a node is down beyond doubt; None if it is ready."""
        return self._outages.sure_in(node, now)

    # For the cache, and for whoever writes

    def follow(self, old: Node | None, new: Node | None) -> None:
        """Take what a watch told."""
        if new is not None:
            self._take(new, by_us=False)
        elif old is not None:
            known = self._store.get(old.name)
            if known is not None and known.uid == old.uid:
                self._drop(known)

    def note(self, node: Node) -> None:
        """Take what the server answered, unless a newer state of the node is known, or that it is gone."""
        if self._store.get(node.name) is not None:
            self._take(node, by_us=True)

    def _take(self, node: Node, *, by_us: bool) -> None:
        known = self._store.get(node.name)
        if known is not None and revision(known.resource_version) >= revision(node.resource_version):
            if not by_us and known.resource_version == node.resource_version:
                self._put(self._row(node, known))  # the same, but the watch's own: one copy is enough
            return
        row = self._row(node, known)
        self._put(row)
        if known is None or not _is_as_before(known.node, node):
            self._changed(row.key, _topics(known, row), by_us)

    def _put(self, row: _Row) -> None:
        old = self._store.put(row)
        before = None if old is None else old.node
        self._sizes.note(before, row.node)
        self._outages.note(before, row.node)
        for key, rows in self._with_label.items():
            if key in row.node.metadata.labels:
                rows[row.key] = row
            else:
                rows.pop(row.key, None)

    def _drop(self, row: _Row) -> None:
        self._store.drop(row.key)
        self._sizes.note(row.node, None)
        self._outages.note(row.node, None)
        for rows in self._with_label.values():
            rows.pop(row.key, None)
        self._changed(row.key, _topics(row, None), False)

    def _row(self, node: Node, known: _Row | None) -> _Row:
        data = node.metadata.annotations.get(DATA_ANNOTATION, "")
        if known is not None and known.node.metadata.annotations.get(DATA_ANNOTATION, "") == data:
            return _Row(node, known.entries, known.problem)
        try:
            return _Row(node, self._read(data))
        except ValueError as error:
            return _Row(node, {}, str(error))


def _is_as_before(old: Node, new: Node) -> bool:
    """Tell whether two states of a node differ in nothing but their version."""
    metadata = msgspec.structs.replace(new.metadata, resource_version=old.resource_version)
    return metadata == old.metadata and new.spec == old.spec and new.status == old.status


def _topics(old: _Row | None, new: _Row | None) -> frozenset[str]:
    """Return what about a change may concern other nodes."""
    before = {} if old is None else old.node.metadata.labels
    after = {} if new is None else new.node.metadata.labels
    changed = {key for key in (*before, *after) if before.get(key) != after.get(key)}
    found = {topics.label(key) for key in changed}
    if old is None or new is None or old.uid != new.uid:
        found.add(topics.NODE_COUNT)
    if _states(old) != _states(new) or changed & {STATE_LABEL, PROFILE_LABEL}:
        found.add(topics.STATES)
    if old is not None and State.IN_MAINTENANCE in _where(old) and (changed or _told(old) != _told(new)):
        found.add(topics.ROOM)
    if old is not None and away.may_be_back(old.node, None if new is None else new.node):
        found.add(topics.SERVICE)
    if _gives(old) != _gives(new):
        found.add(topics.CAPACITY)
    return frozenset(found)


def _where(row: _Row) -> tuple[str, ...]:
    """Return the states that a node counts for."""
    is_coming = any(it.next is State.IN_MAINTENANCE for it in begun.read(row.node).values())
    return (row.state, State.IN_MAINTENANCE) if is_coming and row.state != State.IN_MAINTENANCE else (row.state,)


def _service(row: _Row) -> tuple[str, ...]:
    return (_OUT,) if away.may_count(row.node) else ()


def _told(row: _Row | None) -> tuple[object, ...]:
    return () if row is None else (_where(row), _states(row))


def _gives(row: _Row | None) -> object:
    """Return what decides which pods a node takes, beside its labels."""
    if row is None:
        return None
    node = row.node
    is_ready = any(it.type == "Ready" and it.status == "True" for it in node.status.conditions)
    return fitting.hard_taints(node), node.status.allocatable, is_ready


def _states(row: _Row | None) -> dict[str, str]:
    return {} if row is None else {name: entry.current for name, entry in row.entries.items()}
