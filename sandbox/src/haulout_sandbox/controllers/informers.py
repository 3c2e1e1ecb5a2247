"""The informers that the controllers share: one per kind.

Pods are the most frequent objects and every decision needs some of them, so they are indexed by owner, node and label
instead of being searched. An informer is created at its first use: a kind that no controller uses is not watched.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from haulout.api.resources import Resource
from haulout.kube.client import Client
from haulout.kube.indexer import IndexFunc
from haulout.kube.informer import Informer, as_is
from haulout.kube.reflector import ListWatch
from haulout_sandbox.controllers.objects import (
    JOBS,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    Node,
    OwnedObject,
    Pod,
    PodDisruptionBudget,
)
from haulout_sandbox.nodes.pod_spec import LabelSelector

O = TypeVar("O", bound=OwnedObject)  # noqa: E741 - an object of any kind


class InformerFactory:
    """Creates and shares the informers of a cluster."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._informers: dict[str, Informer[Any]] = {}

    def informer_for(self, resource: Resource[O], *, indexes: Mapping[str, IndexFunc[O]] | None = None) -> Informer[O]:
        """Return the informer of a kind. `indexes` are added to the usual ones, if it is created now."""
        informer = self._informers.get(str(resource))
        if informer is None:
            informer = Informer(
                self.client,
                ListWatch(resource),
                transform=as_is,
                indexes={**_indexes_for(resource), **(indexes or {})},
                has_same_index_values=_index_comparison_for(resource),
            )
            self._informers[str(resource)] = informer
        return informer

    def has_informer(self, resource: Resource[Any]) -> bool:
        """Return whether there is an informer for this kind."""
        return str(resource) in self._informers

    def discard(self, resource: Resource[Any]) -> None:
        """Forget the informer of this kind, so that the next use creates a new one; the caller stops the old one."""
        self._informers.pop(str(resource), None)

    def all(self) -> Collection[Informer[Any]]:
        """Return the informers created so far."""
        return tuple(self._informers.values())

    @property
    def pods(self) -> Informer[Pod]:
        return self.informer_for(PODS)

    @property
    def nodes(self) -> Informer[Node]:
        return self.informer_for(NODES)


def dependents(informer: Informer[O], owner_uid: str) -> list[O]:
    """Return the objects with an owner reference to this owner."""
    return list(informer.by_index("owner", owner_uid))


def controlled(informer: Informer[O], owner_uid: str) -> list[O]:
    """Return the objects whose controller is this owner."""
    return list(informer.by_index("controller", owner_uid))


def orphans(informer: Informer[O], namespace: str) -> list[O]:
    """Return the objects in a namespace that have no controller."""
    return list(informer.by_index("orphans", namespace))


def in_namespace(informer: Informer[O], namespace: str) -> list[O]:
    return list(informer.by_index("namespace", namespace))


def on_node(pods: Informer[Pod], node: str) -> list[Pod]:
    return list(pods.by_index("node", node))


def selected_pods(pods: Informer[Pod], namespace: str, selector: LabelSelector) -> list[Pod]:
    """Return the pods in a namespace that match `selector`, with the help of the label index."""
    pods_by_label = [pods.by_index("label", _label_key(namespace, *pair)) for pair in selector.match_labels.items()]
    candidates = min(pods_by_label, key=len) if pods_by_label else pods.by_index("namespace", namespace)
    if len(pods_by_label) == 1 and not selector.match_expressions:
        return list(candidates)
    return [pod for pod in candidates if selector.matches(pod.labels)]


def pdbs_for(
    pdbs: Informer[PodDisruptionBudget], namespace: str, labels: Mapping[str, str]
) -> list[PodDisruptionBudget]:
    """Return the PodDisruptionBudgets that match pods with these labels, with the help of the label index."""
    index_values = [_label_key(namespace, *pair) for pair in labels.items()]
    candidates = [pdb for index_value in (namespace, *index_values) for pdb in pdbs.by_index("selects", index_value)]
    return [pdb for pdb in candidates if pdb.spec.selector is not None and pdb.spec.selector.matches(labels)]


def _indexes_for(resource: Resource[Any]) -> Mapping[str, IndexFunc[Any]]:
    common_indexes: dict[str, IndexFunc[Any]] = {
        "owner": _owner_uids,
        "controller": _controller_uids,
        "orphans": _orphan_namespaces,
        "namespace": _namespaces,
    }
    if resource.plural == PODS.plural:
        return common_indexes | {"node": _node_names, "label": _label_keys, "job": _job_keys}
    if resource.plural == POD_DISRUPTION_BUDGETS.plural:
        return common_indexes | {"selects": _selector_keys}
    return common_indexes


def _index_comparison_for(resource: Resource[Any]) -> Callable[[Any, Any], bool] | None:
    """Return a test whether a change leaves all index keys of an object as they are."""
    if resource.plural == PODS.plural:
        return _pod_has_same_index_values
    return None if resource.plural == POD_DISRUPTION_BUDGETS.plural else _has_same_index_values


def _has_same_index_values(old: OwnedObject, new: OwnedObject) -> bool:
    return old.metadata.owner_references == new.metadata.owner_references


def _pod_has_same_index_values(old: Pod, new: Pod) -> bool:
    old_metadata, new_metadata = old.metadata, new.metadata
    return (
        old_metadata.labels == new_metadata.labels
        and old.spec.node_name == new.spec.node_name
        and old_metadata.owner_references == new_metadata.owner_references
    )


def _owner_uids(obj: OwnedObject) -> Sequence[str]:
    return [owner.uid for owner in obj.metadata.owner_references]


def _controller_uids(obj: OwnedObject) -> Sequence[str]:
    owner = obj.controller
    return () if owner is None else (owner.uid,)


def _orphan_namespaces(obj: OwnedObject) -> Sequence[str]:
    return () if obj.controller else (obj.namespace,)


def _namespaces(obj: OwnedObject) -> Sequence[str]:
    return (obj.namespace,)


def _node_names(pod: Pod) -> Sequence[str]:
    return (pod.spec.node_name,) if pod.spec.node_name else ()


def _label_keys(pod: Pod) -> Sequence[str]:
    return [_label_key(pod.namespace, *pair) for pair in pod.labels.items()]


def _label_key(namespace: str, label: str, value: str) -> str:
    return f"{namespace}/{label}={value}"


def _selector_keys(pdb: PodDisruptionBudget) -> Sequence[str]:
    """Return one label that all pods of a budget have, or its namespace if it requires none."""
    selector = pdb.spec.selector
    if selector is None:
        return ()
    first_label = next(iter(selector.match_labels.items()), None)
    return (pdb.namespace,) if first_label is None else (_label_key(pdb.namespace, *first_label),)


def _job_keys(pod: Pod) -> Sequence[str]:
    # Index by the job's name, not its uid: the pods must be released also after the job is deleted.
    owner = pod.controller
    return (f"{pod.namespace}/{owner.name}",) if owner and owner.kind == JOBS.kind else ()
