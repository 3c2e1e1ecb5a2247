"""What the leader sees: its own caches, read as they are, and who is told when something about a node changes.

Profiles and notices are parts that may break and start anew, with other caches. Whoever follows asks `renew` now and
then, which looks whether they are still the same.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from haulout.budget.limits import Budget
from haulout.budget.line import Line
from haulout.core.clock import Clock
from haulout.kinds.notice import MaintenanceNotice
from haulout.kube.cache import Cache
from haulout.kube.objects import Node, Object
from haulout.maintenance.resource import NodeMaintenance
from haulout.maintenance.sight import BY_NODE as OF_ORDERS
from haulout.notices.controller import BY_NODE as OF_NOTICES
from haulout.notices.controller import Controller as NoticesController
from haulout.profiles import data
from haulout.profiles.controller import Controller as ProfilesController
from haulout.profiles.data import DataError
from haulout.profiles.plugin import DATA_ANNOTATION, Entry
from haulout.web.api.notices import phase_of
from haulout.web.api.subject import Subject

Tell = Callable[[str], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """Where all of it is kept."""

    clock: Clock
    nodes: Cache[Node]
    maintenances: Cache[NodeMaintenance]
    line: Line
    profiles: Callable[[], ProfilesController | None]  # None: nobody sees to them here
    notices: Callable[[], NoticesController | None]
    budget: Callable[[], Budget]

    def subjects(self) -> "Subjects":
        """Return what is known, looked up once for many nodes."""
        return Subjects(self)


class Subjects:
    """Nodes, as they are at one instant."""

    def __init__(self, sight: Sight) -> None:
        self._sight = sight
        self._now = sight.clock.now()
        self._profiles = sight.profiles()
        self._notices = sight.notices()
        self._knows_orders = sight.maintenances.health().synced
        self._places = {it.name: place for place, it in enumerate(sight.line.orders(), 1)}

    def get(self, name: str) -> Subject | None:
        """Return a node; None if there is none of that name."""
        node = self._sight.nodes.get(name)
        if node is None:
            return None
        entries, problem = self._entries(node)
        profiles = self._profiles
        return Subject(
            node=node,
            now=self._now,
            entries=entries,
            data_problem=problem,
            info=None if profiles is None else profiles.info.get(name),
            drains={} if profiles is None else profiles.drains(name),
            orders=tuple(sorted(self._sight.maintenances.by(OF_ORDERS, name), key=_age)),
            notices=self._announced(name),
            knows_orders=self._knows_orders,
            places=self._places,
        )

    def _entries(self, node: Node) -> tuple[Mapping[str, Entry], str]:
        sight = None if self._profiles is None else self._profiles.sight(node.name)
        if sight is not None and sight.node.uid == node.uid:
            return sight.entries, sight.problem
        try:
            return data.entries_of(node.metadata.annotations.get(DATA_ANNOTATION)), ""
        except DataError as error:
            return {}, str(error)

    def _announced(self, name: str) -> tuple[MaintenanceNotice, ...]:
        if self._notices is None:
            return ()
        found = (it for it in self._notices.notices.by(OF_NOTICES, name) if not phase_of(it, now=self._now).is_over)
        return tuple(sorted(found, key=_age))


def _age(thing: Object) -> tuple[object, ...]:
    """Return what sorts things by when they were made."""
    created = thing.metadata.creation_timestamp
    return created is None, created, thing.name


@dataclass(slots=True)
class Following:
    """Follows what is seen, while somebody looks; `node` and `notice` hear what has changed."""

    sight: Sight
    node: Tell
    notice: Tell
    _ends: list[Callable[[], None]] = field(default_factory=list)
    _profiles: ProfilesController | None = None
    _notices: NoticesController | None = None
    _of_parts: list[Callable[[], None]] = field(default_factory=list)

    def begin(self) -> None:
        """Hear of all that there is, and of each change."""
        self._ends = [
            self.sight.nodes.subscribe(self._note_node),
            self.sight.maintenances.subscribe(self._note_order),
        ]
        self.renew()

    def end(self) -> None:
        """Hear nothing more."""
        self._leave_parts()
        self._profiles = self._notices = None
        for end in self._ends:
            end()
        self._ends = []

    def renew(self) -> None:
        """Follow parts that have started anew."""
        profiles, notices = self.sight.profiles(), self.sight.notices()
        if profiles is self._profiles and notices is self._notices:
            return
        self._leave_parts()
        self._profiles, self._notices = profiles, notices
        if profiles is not None:
            self._of_parts.append(profiles.info.subscribe(self.node))
        if notices is not None:
            self._of_parts.append(notices.notices.subscribe(self._note_notice))
        for node in self.sight.nodes.all():
            self.node(node.name)

    def _leave_parts(self) -> None:
        for end in self._of_parts:
            end()
        self._of_parts = []

    def _note_node(self, old: Node | None, new: Node | None) -> None:
        if not _is_heartbeat(old, new):
            self.node((new or old or Node()).name)

    def _note_order(self, old: NodeMaintenance | None, new: NodeMaintenance | None) -> None:
        for name in {it.node for it in (old, new) if it is not None}:
            self.node(name)

    def _note_notice(self, old: MaintenanceNotice | None, new: MaintenanceNotice | None) -> None:
        self.notice((new or old or MaintenanceNotice()).name)
        for name in {it.node for it in (old, new) if it is not None and it.node}:
            self.node(name)


def _is_heartbeat(old: Node | None, new: Node | None) -> bool:
    """Tell whether a kubelet has only said again that all is well."""
    if old is None or new is None:
        return False
    before, after = old.metadata, new.metadata
    same = before.uid == after.uid and before.labels == after.labels and before.annotations == after.annotations
    return same and old.spec == new.spec and old.status == new.status
