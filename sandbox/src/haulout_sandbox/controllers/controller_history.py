"""ControllerRevisions of stateful sets and daemon sets: past templates, to compare pods with and to roll back to.

Follows `pkg/controller/history` of Kubernetes 1.36. Each template becomes a ControllerRevision, named after its hash.
When an earlier template returns, its revision is reused and becomes the latest.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from haulout.api.objects import RawObject
from haulout.api.resources import Resource
from haulout.errors import AlreadyExists
from haulout_sandbox.controllers import object_control
from haulout_sandbox.controllers.informers import InformerFactory, controlled
from haulout_sandbox.controllers.objects import CONTROLLER_REVISIONS, ControllerRevision, OwnedObject
from haulout_sandbox.controllers.pod_template import compute_hash, controller_ref


@dataclass(frozen=True, slots=True)
class RevisionHistory:
    """All revisions of an owner, the oldest first, and the revision of its current template."""

    revisions: tuple[ControllerRevision, ...]
    latest: ControllerRevision
    collisions: int

    def revision_named(self, name: str) -> ControllerRevision:
        """Return the revision of this name, or the latest if there is none."""
        return next((revision for revision in self.revisions if revision.name == name), self.latest)


def template_of(revision: ControllerRevision) -> RawObject:
    stored = revision.data.get("spec", {}).get("template", {})
    return {name: value for name, value in stored.items() if name != "$patch"}


def sort_revisions(revisions: Iterable[ControllerRevision]) -> list[ControllerRevision]:
    """Return the revisions, the oldest first."""
    return sorted(revisions, key=lambda revision: (revision.revision, revision.creation_order))


def revisions_to_delete(
    history: RevisionHistory, *, names_in_use: Collection[str], limit: int
) -> Sequence[ControllerRevision]:
    """Return the oldest unused revisions that exceed `limit`."""
    unused = [
        revision
        for revision in history.revisions
        if revision.name not in names_in_use and revision is not history.latest
    ]
    return unused[: max(len(unused) - limit, 0)]


async def sync_history(
    informers: InformerFactory,
    owner: OwnedObject,
    template: RawObject,
    *,
    resource: Resource[Any],
    hash_label: str,
    collisions: int,
) -> RevisionHistory:
    """Return the history of `owner`, with its template as the latest; `hash_label` is the label for the hash."""
    client, informer = informers.client, informers.informer_for(CONTROLLER_REVISIONS)
    revisions = sort_revisions(controlled(informer, owner.uid))
    next_number = revisions[-1].revision + 1 if revisions else 1
    same_template = [revision for revision in revisions if template_of(revision) == template]
    async with object_control.WriteBarrier(informer) as writes:
        if same_template and same_template[-1] is revisions[-1]:
            latest = same_template[-1]
        elif same_template:
            latest = await object_control.patch(
                client, CONTROLLER_REVISIONS, same_template[-1], {"revision": next_number}
            )
            writes.record(latest)
        else:
            while True:
                body = _revision_body(
                    owner, template, next_number, resource=resource, hash_label=hash_label, collisions=collisions
                )
                created = await _create_revision(informers, body, template)
                if created is not None:
                    break
                collisions += 1
            latest = created
            writes.record(latest)
    others = [revision for revision in revisions if revision.uid != latest.uid]
    return RevisionHistory((*others, latest), latest, collisions)


async def _create_revision(
    informers: InformerFactory, body: RawObject, template: RawObject
) -> ControllerRevision | None:
    """Return the new revision, or None if the name is taken."""
    metadata = body["metadata"]
    try:
        return await object_control.create(informers.client, CONTROLLER_REVISIONS, body)
    except AlreadyExists:
        existing = await informers.client.get(CONTROLLER_REVISIONS, metadata["name"], namespace=metadata["namespace"])
    is_ours = existing.controller_uid == metadata["ownerReferences"][0]["uid"] and template_of(existing) == template
    return existing if is_ours else None


def _revision_body(
    owner: OwnedObject, template: RawObject, number: int, *, resource: Resource[Any], hash_label: str, collisions: int
) -> RawObject:
    template_hash = compute_hash(template, collisions=collisions)
    return {
        "apiVersion": CONTROLLER_REVISIONS.api_version,
        "kind": CONTROLLER_REVISIONS.kind,
        "metadata": {
            "name": f"{owner.name}-{template_hash}",
            "namespace": owner.namespace,
            "labels": {**template.get("metadata", {}).get("labels", {}), hash_label: template_hash},
            "ownerReferences": [controller_ref(owner, resource)],
        },
        "data": {"spec": {"template": {**template, "$patch": "replace"}}},
        "revision": number,
    }
