"""The caches that the controllers share: one for each kind that somebody asks for, whoever else does.

Pods are by far the most, and every decision asks for some of them, so they are found by owner, by node and by label
instead of being searched. A cache exists from the moment that it is first asked for: what no controller uses is not
watched.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from haulout.kube.cache import Cache, as_is
from haulout.kube.client import Client
from haulout.kube.follow import Selection
from haulout.kube.resources import Resource
from haulout.kube.store import Indexer
from haulout_sandbox.controllers.evictions import EVICTION_REQUESTS, EVICTIONS, target_key
from haulout_sandbox.controllers.objects import (
    BUDGETS,
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    REPLICA_SETS,
    REVISIONS,
    STATEFUL_SETS,
    Budget,
    ControllerRevision,
    DaemonSet,
    Deployment,
    Job,
    LabelSelector,
    Namespace,
    Node,
    Owned,
    Pod,
    ReplicaSet,
    StatefulSet,
)

O = TypeVar("O", bound=Owned)  # noqa: E741 - an object of any kind


class Caches:
    """What the controllers see of a cluster."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._caches: dict[str, Cache[Any]] = {}

    def of(self, resource: Resource[O]) -> Cache[O]:
        """Return the cache of all objects of this kind."""
        known = self._caches.get(str(resource))
        if known is None:
            known = Cache(
                self.client, Selection(resource), row=as_is, indexes=_indexes_for(resource), stays=_stays_for(resource)
            )
            self._caches[str(resource)] = known
        return known

    def has(self, resource: Resource[Any]) -> bool:
        """Tell whether somebody asked for this kind."""
        return str(resource) in self._caches

    def forget(self, resource: Resource[Any]) -> None:
        """Have the next who asks for this kind get a new cache; who runs the old one ends it."""
        self._caches.pop(str(resource), None)

    def all(self) -> Collection[Cache[Any]]:
        """Return the caches that somebody asked for."""
        return tuple(self._caches.values())

    @property
    def pods(self) -> Cache[Pod]:
        """All pods."""
        return self.of(PODS)

    @property
    def nodes(self) -> Cache[Node]:
        """All nodes."""
        return self.of(NODES)

    @property
    def namespaces(self) -> Cache[Namespace]:
        """All namespaces."""
        return self.of(NAMESPACES)

    @property
    def replica_sets(self) -> Cache[ReplicaSet]:
        """All replica sets."""
        return self.of(REPLICA_SETS)

    @property
    def deployments(self) -> Cache[Deployment]:
        """All deployments."""
        return self.of(DEPLOYMENTS)

    @property
    def stateful_sets(self) -> Cache[StatefulSet]:
        """All stateful sets."""
        return self.of(STATEFUL_SETS)

    @property
    def daemon_sets(self) -> Cache[DaemonSet]:
        """All daemon sets."""
        return self.of(DAEMON_SETS)

    @property
    def revisions(self) -> Cache[ControllerRevision]:
        """All controller revisions."""
        return self.of(REVISIONS)

    @property
    def jobs(self) -> Cache[Job]:
        """All jobs."""
        return self.of(JOBS)

    @property
    def budgets(self) -> Cache[Budget]:
        """All disruption budgets."""
        return self.of(BUDGETS)


def dependents(cache: Cache[O], owner_uid: str) -> list[O]:
    """Return the objects that name this owner."""
    return list(cache.by("owner", owner_uid))


def controlled(cache: Cache[O], owner_uid: str) -> list[O]:
    """Return the objects that this owner manages."""
    return list(cache.by("controller", owner_uid))


def orphans(cache: Cache[O], namespace: str) -> list[O]:
    """Return the objects in a namespace that nobody manages."""
    return list(cache.by("orphans", namespace))


def in_namespace(cache: Cache[O], namespace: str) -> list[O]:
    """Return the objects in a namespace."""
    return list(cache.by("namespace", namespace))


def on_node(pods: Cache[Pod], node: str) -> list[Pod]:
    """Return the pods that are bound to a node."""
    return list(pods.by("node", node))


def selected(pods: Cache[Pod], namespace: str, selector: LabelSelector) -> list[Pod]:
    """Return the pods in a namespace that `selector` selects; only those that share a label with it are looked at."""
    buckets = [pods.by("label", _label(namespace, *pair)) for pair in selector.match_labels.items()]
    candidates = min(buckets, key=len) if buckets else pods.by("namespace", namespace)
    if len(buckets) == 1 and not selector.match_expressions:
        return list(candidates)
    return [pod for pod in candidates if selector.matches(pod.labels)]


def budgets_for(budgets: Cache[Budget], namespace: str, labels: Mapping[str, str]) -> list[Budget]:
    """Return the disruption budgets that select pods with these labels; only those that share one are looked at."""
    places = [_label(namespace, *pair) for pair in labels.items()]
    candidates = [budget for place in (namespace, *places) for budget in budgets.by("selects", place)]
    return [it for it in candidates if it.spec.selector is not None and it.spec.selector.matches(labels)]


def _indexes_for(resource: Resource[Any]) -> Mapping[str, Indexer[Any]]:
    common: dict[str, Indexer[Any]] = {
        "owner": _owners,
        "controller": _controller,
        "orphans": _orphaned_in,
        "namespace": _namespace,
    }
    if resource.plural == PODS.plural:
        return common | {"node": _node, "label": _labels, "job": _job}
    if resource.plural == BUDGETS.plural:
        return common | {"selects": _selects}
    if resource in (EVICTION_REQUESTS, EVICTIONS):
        return common | {"target": lambda thing: (target_key(thing),)}
    return common


def _stays_for(resource: Resource[Any]) -> Callable[[Any, Any], bool] | None:
    """Return what tells whether a change leaves an object where it is in all indexes."""
    if resource.plural == PODS.plural:
        return _pod_stays
    return None if resource.plural == BUDGETS.plural else _stays


def _stays(old: Owned, new: Owned) -> bool:
    return old.metadata.owner_references == new.metadata.owner_references


def _pod_stays(old: Pod, new: Pod) -> bool:
    one, other = old.metadata, new.metadata
    return (
        one.labels == other.labels
        and old.spec.node_name == new.spec.node_name
        and one.owner_references == other.owner_references
    )


def _owners(thing: Owned) -> Sequence[str]:
    return [owner.uid for owner in thing.metadata.owner_references]


def _controller(thing: Owned) -> Sequence[str]:
    owner = thing.controller
    return () if owner is None else (owner.uid,)


def _orphaned_in(thing: Owned) -> Sequence[str]:
    return () if thing.controller else (thing.namespace,)


def _namespace(thing: Owned) -> Sequence[str]:
    return (thing.namespace,)


def _node(pod: Pod) -> Sequence[str]:
    return (pod.spec.node_name,) if pod.spec.node_name else ()


def _labels(pod: Pod) -> Sequence[str]:
    return [_label(pod.namespace, *pair) for pair in pod.labels.items()]


def _label(namespace: str, name: str, value: str) -> str:
    return f"{namespace}/{name}={value}"


def _selects(budget: Budget) -> Sequence[str]:
    """Return one label that all pods of a budget have; if it asks for none, its namespace."""
    selector = budget.spec.selector
    if selector is None:
        return ()
    pair = next(iter(selector.match_labels.items()), None)
    return (budget.namespace,) if pair is None else (_label(budget.namespace, *pair),)


def _job(pod: Pod) -> Sequence[str]:
    # A job's pods are found by its name: they must be let go of also when it is gone, and its uid with it.
    owner = pod.controller
    return (f"{pod.namespace}/{owner.name}",) if owner and owner.kind == JOBS.kind else ()
