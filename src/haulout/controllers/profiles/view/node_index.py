"""The nodes as profiles see them: indexed, and including Haulout's own writes.

An informer delivers watch events; `record_write` takes the response to each write of this process. The newer
resourceVersion of a node wins, and a response never brings back a node whose deletion the watch has delivered. So a
decision after a write is based on it even if the watch has not delivered it yet. Limits on the number of nodes in
maintenance hold within one process because of this. Between processes the ledger enforces them
(`haulout.kube.slot_ledger`).

A change is reported with its topics: the aspects that may affect other nodes. Most updates of a node change nothing
that is read here, such as kubelet heartbeats. These are stored but not reported.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime, timedelta

import msgspec

from haulout.api.objects import Node
from haulout.budget import unavailable_nodes
from haulout.budget.budget_check import GroupSizes
from haulout.budget.limits import LimitGroup
from haulout.budget.unavailable_nodes import NotReadyTracker
from haulout.controllers.profiles.machine import transitions
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
    """A node in the store, with the key and version that `IndexedStore` needs."""

    __slots__ = ()

    @property
    def key(self) -> str:
        return self.node.name

    @property
    def uid(self) -> str:
        """Distinguishes the node from a later one of the same name."""
        return self.node.uid

    @property
    def resource_version(self) -> str:
        return self.node.resource_version


class NodeIndex:
    """The nodes. `read_data` decodes a data annotation; `on_change` is called for each relevant change.

    Pass a `clock` if the index is kept up to date by a watch; a snapshot needs none.
    """

    def __init__(self, read_data: ReadData, *, on_change: OnChange, clock: Clock | None = None) -> None:
        self._read_data = read_data
        self._on_change = on_change
        self._store: IndexedStore[_Row] = IndexedStore(
            {_STATE_INDEX: _counted_states, _AVAILABILITY_INDEX: _availability}
        )
        self._sizes = GroupSizes(lambda: (row.node for row in self._store.all()))
        self._not_ready_nodes = NotReadyTracker(clock)
        self._with_label: dict[str, dict[str, _Row]] = {}  # for requested labels only

    # Read

    def get(self, name: str) -> ObservedNode | None:
        return self._store.get(name)

    def all(self) -> Collection[ObservedNode]:
        return self._store.all()

    def in_state(self, state: State) -> Collection[ObservedNode]:
        """Return the nodes whose state label is `state`; for in-maintenance also those on their way into it."""
        return self._store.by_index(_STATE_INDEX, state)

    def with_label(self, key: str) -> Collection[ObservedNode]:
        """Return the nodes that have a label. The first call for a label builds an index for it."""
        if key not in self._with_label:
            rows = self._store.all()
            self._with_label[key] = {row.key: row for row in rows if key in row.node.metadata.labels}
        return self._with_label[key].values()

    # Budgets

    def find(self, name: str) -> Node | None:
        """Return a node; None if it does not exist."""
        row = self._store.get(name)
        return None if row is None else row.node

    def possibly_unavailable(self) -> Iterable[Node]:
        """Return the nodes that are unavailable, or may be."""
        return [row.node for row in self._store.by_index(_AVAILABILITY_INDEX, _UNAVAILABLE)]

    def group_size(self, group: LimitGroup) -> int:
        return self._sizes.size(group)

    def time_until_down(self, node: Node, now: datetime) -> timedelta | None:
        """Return in what time a node counts as down; None if it is ready."""
        return self._not_ready_nodes.time_until_down(node, now)

    # Updates

    def on_watch_event(self, old: Node | None, new: Node | None) -> None:
        if new is not None:
            self._update(new, is_own_write=False)
        elif old is not None:
            known = self._store.get(old.name)
            if known is not None and known.uid == old.uid:
                self._remove(known)

    def record_write(self, node: Node) -> None:
        """Apply the response to a write, unless a newer version of the node or its deletion is already known."""
        if self._store.get(node.name) is not None:
            self._update(node, is_own_write=True)

    def _update(self, node: Node, *, is_own_write: bool) -> None:
        known = self._store.get(node.name)
        if known is not None and revision(known.resource_version) >= revision(node.resource_version):
            if not is_own_write and known.resource_version == node.resource_version:
                self._put(self._row(node, known))  # same version: keep the watch's object, so that one copy is enough
            return
        row = self._row(node, known)
        self._put(row)
        if known is None or not _is_unchanged(known.node, node):
            self._on_change(row.key, _changed_topics(known, row), is_own_write)

    def _put(self, row: _Row) -> None:
        old = self._store.put(row)
        before = None if old is None else old.node
        self._sizes.on_node_change(before, row.node)
        self._not_ready_nodes.on_node_change(before, row.node)
        for key, rows in self._with_label.items():
            if key in row.node.metadata.labels:
                rows[row.key] = row
            else:
                rows.pop(row.key, None)

    def _remove(self, row: _Row) -> None:
        self._store.drop(row.key)
        self._sizes.on_node_change(row.node, None)
        self._not_ready_nodes.on_node_change(row.node, None)
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
    """Return whether two versions of a node differ in nothing but the resourceVersion."""
    metadata = msgspec.structs.replace(new.metadata, resource_version=old.resource_version)
    return metadata == old.metadata and new.spec == old.spec and new.status == old.status


def _changed_topics(old: _Row | None, new: _Row | None) -> frozenset[str]:
    """Return the topics of a change: the aspects that may affect other nodes."""
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
    """Return the states in which a node counts: that of its label, and in maintenance if it is on its way there."""
    is_entering = any(
        transition.next is State.IN_MAINTENANCE for transition in transitions.read_pending(row.node).values()
    )
    return (row.state, State.IN_MAINTENANCE) if is_entering and row.state != State.IN_MAINTENANCE else (row.state,)


def _availability(row: _Row) -> tuple[str, ...]:
    return (_UNAVAILABLE,) if unavailable_nodes.may_be_unavailable(row.node) else ()


def _maintenance_facts(row: _Row | None) -> tuple[object, ...]:
    return () if row is None else (_counted_states(row), _profile_states(row))


def _scheduling_facts(row: _Row | None) -> object:
    """Return what determines which pods a node accepts, beside its labels."""
    if row is None:
        return None
    node = row.node
    return scheduling.hard_taints(node), node.status.allocatable, node.is_ready


def _profile_states(row: _Row | None) -> dict[str, str]:
    return {} if row is None else {name: status.current for name, status in row.statuses.items()}
