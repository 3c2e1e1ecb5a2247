"""What profiles see of a cluster: all nodes, with indexes, in which our own writes already count.

A cache follows the nodes; `record_write` takes what a write of ours was answered with. Of two states of a node the
newer counts; and an answer brings no node back of which the watch has told that it is gone. So a decision that follows
a write rests on it, though the watch may not have told yet: this is how limits on the number of nodes in maintenance
hold within one process. (Between processes it is the ledger, `haulout.kube.slot_ledger`.)

A change is told with its topics: what about it may concern other nodes. Most states of a node differ in nothing that
anybody here reads, since a kubelet has only said again that all is well: these are taken, and not told.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime, timedelta

import msgspec

from haulout.api.objects import Node
from haulout.budget import unavailable_nodes
from haulout.budget.budget_check import GroupSizes
from haulout.budget.limits import LimitGroup
from haulout.budget.not_ready_tracker import NotReadyTracker
from haulout.controllers.profiles.machine import pending_transitions
from haulout.controllers.profiles.plugin import (
    DATA_ANNOTATION,
    PROFILE_LABEL,
    STATE_LABEL,
    ObservedNode,
    ProfileStatus,
    State,
)
from haulout.controllers.profiles.view import scheduling, topics
from haulout.core.clock import Clock
from haulout.kube.indexer import IndexedStore
from haulout.kube.informer import revision

_STATE_INDEX = "state"
_AVAILABILITY_INDEX = "service"
_UNAVAILABLE = "out"

ReadData = Callable[[str], Mapping[str, ProfileStatus]]
OnChange = Callable[[str, frozenset[str], bool], object]  # the node, its topics, and whether it was our own write


class _Row(ObservedNode):
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


class NodeIndex:
    """The nodes; `read_data` makes entries of a data annotation, `on_change` hears of each change.

    Whoever follows them gives a `clock`; who takes one look has none.
    """

    def __init__(self, read_data: ReadData, *, on_change: OnChange, clock: Clock | None = None) -> None:
        self._read_data = read_data
        self._on_change = on_change
        self._store: IndexedStore[_Row] = IndexedStore(
            {_STATE_INDEX: _counted_states, _AVAILABILITY_INDEX: _availability}
        )
        self._sizes = GroupSizes(lambda: (row.node for row in self._store.all()))
        self._outages = NotReadyTracker(clock)
        self._with_label: dict[str, dict[str, _Row]] = {}  # for labels that were asked for

    # For readers

    def get(self, name: str) -> ObservedNode | None:
        """Return a node."""
        return self._store.get(name)

    def all(self) -> Collection[ObservedNode]:
        """Return all nodes."""
        return self._store.all()

    def in_state(self, state: State) -> Collection[ObservedNode]:
        """Return the nodes whose state label says so; in maintenance are also those that are on their way there."""
        return self._store.by_index(_STATE_INDEX, state)

    def with_label(self, key: str) -> Collection[ObservedNode]:
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

    def possibly_unavailable(self) -> Iterable[Node]:
        """Return the nodes that are out of service, or may be."""
        return [row.node for row in self._store.by_index(_AVAILABILITY_INDEX, _UNAVAILABLE)]

    def group_size(self, group: LimitGroup) -> int:
        """Return how many nodes there are in a group."""
        return self._sizes.size(group)

    def time_until_down(self, node: Node, now: datetime) -> timedelta | None:
        """Return in what time a node is down beyond doubt; None if it is ready."""
        return self._outages.time_until_down(node, now)

    # For the cache, and for whoever writes

    def on_watch_event(self, old: Node | None, new: Node | None) -> None:
        """Take what a watch told."""
        if new is not None:
            self._update(new, is_own_write=False)
        elif old is not None:
            known = self._store.get(old.name)
            if known is not None and known.uid == old.uid:
                self._remove(known)

    def record_write(self, node: Node) -> None:
        """Take what the server answered, unless a newer state of the node is known, or that it is gone."""
        if self._store.get(node.name) is not None:
            self._update(node, is_own_write=True)

    def _update(self, node: Node, *, is_own_write: bool) -> None:
        known = self._store.get(node.name)
        if known is not None and revision(known.resource_version) >= revision(node.resource_version):
            if not is_own_write and known.resource_version == node.resource_version:
                self._put(self._row(node, known))  # the same, but the watch's own: one copy is enough
            return
        row = self._row(node, known)
        self._put(row)
        if known is None or not _is_unchanged(known.node, node):
            self._on_change(row.key, _changed_topics(known, row), is_own_write)

    def _put(self, row: _Row) -> None:
        old = self._store.put(row)
        before = None if old is None else old.node
        self._sizes.on_node_change(before, row.node)
        self._outages.on_node_change(before, row.node)
        for key, rows in self._with_label.items():
            if key in row.node.metadata.labels:
                rows[row.key] = row
            else:
                rows.pop(row.key, None)

    def _remove(self, row: _Row) -> None:
        self._store.drop(row.key)
        self._sizes.on_node_change(row.node, None)
        self._outages.on_node_change(row.node, None)
        for rows in self._with_label.values():
            rows.pop(row.key, None)
        self._on_change(row.key, _changed_topics(row, None), False)

    def _row(self, node: Node, known: _Row | None) -> _Row:
        data = node.metadata.annotations.get(DATA_ANNOTATION, "")
        if known is not None and known.node.metadata.annotations.get(DATA_ANNOTATION, "") == data:
            return _Row(node, known.statuses, known.problem)
        try:
            return _Row(node, self._read_data(data))
        except ValueError as error:
            return _Row(node, {}, str(error))


def _is_unchanged(old: Node, new: Node) -> bool:
    """Tell whether two states of a node differ in nothing but their version."""
    metadata = msgspec.structs.replace(new.metadata, resource_version=old.resource_version)
    return metadata == old.metadata and new.spec == old.spec and new.status == old.status


def _changed_topics(old: _Row | None, new: _Row | None) -> frozenset[str]:
    """Return what about a change may concern other nodes."""
    before = {} if old is None else old.node.metadata.labels
    after = {} if new is None else new.node.metadata.labels
    changed = {key for key in (*before, *after) if before.get(key) != after.get(key)}
    found = {topics.label(key) for key in changed}
    if old is None or new is None or old.uid != new.uid:
        found.add(topics.NODE_COUNT)
    if _profile_states(old) != _profile_states(new) or changed & {STATE_LABEL, PROFILE_LABEL}:
        found.add(topics.STATES)
    if (
        old is not None
        and State.IN_MAINTENANCE in _counted_states(old)
        and (changed or _maintenance_facts(old) != _maintenance_facts(new))
    ):
        found.add(topics.MAINTENANCE_ROOM)
    if old is not None and unavailable_nodes.may_be_available_again(old.node, None if new is None else new.node):
        found.add(topics.AVAILABILITY)
    if _scheduling_facts(old) != _scheduling_facts(new):
        found.add(topics.CAPACITY)
    return frozenset(found)


def _counted_states(row: _Row) -> tuple[str, ...]:
    """Return the states that a node counts for."""
    is_entering = any(
        transition.next is State.IN_MAINTENANCE for transition in pending_transitions.read(row.node).values()
    )
    return (row.state, State.IN_MAINTENANCE) if is_entering and row.state != State.IN_MAINTENANCE else (row.state,)


def _availability(row: _Row) -> tuple[str, ...]:
    return (_UNAVAILABLE,) if unavailable_nodes.may_be_unavailable(row.node) else ()


def _maintenance_facts(row: _Row | None) -> tuple[object, ...]:
    return () if row is None else (_counted_states(row), _profile_states(row))


def _scheduling_facts(row: _Row | None) -> object:
    """Return what decides which pods a node takes, beside its labels."""
    if row is None:
        return None
    node = row.node
    is_ready = any(condition.type == "Ready" and condition.status == "True" for condition in node.status.conditions)
    return scheduling.hard_taints(node), node.status.allocatable, is_ready


def _profile_states(row: _Row | None) -> dict[str, str]:
    return {} if row is None else {name: status.current for name, status in row.statuses.items()}
