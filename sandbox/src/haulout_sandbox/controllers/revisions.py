"""The templates that a stateful set or a daemon set has had: what its pods are compared with, and can go back to.

Follows `pkg/controller/history` of Kubernetes 1.36. A template becomes a ControllerRevision, named after its hash. When
an earlier template is wanted again, its revision is used again and becomes the latest.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from haulout.errors import AlreadyExists
from haulout.kube.objects import RawObject
from haulout.kube.resources import Resource
from haulout_sandbox.controllers import edge
from haulout_sandbox.controllers.caches import Caches, controlled
from haulout_sandbox.controllers.objects import REVISIONS, ControllerRevision, Owned
from haulout_sandbox.controllers.templates import fingerprint, reference


@dataclass(frozen=True, slots=True)
class History:
    """All revisions of an owner, the oldest first, and the one of its template as it is now."""

    revisions: tuple[ControllerRevision, ...]
    latest: ControllerRevision
    collisions: int

    def named(self, name: str) -> ControllerRevision:
        """Return the revision of this name, the latest if there is none."""
        return next((each for each in self.revisions if each.name == name), self.latest)


def template_of(revision: ControllerRevision) -> RawObject:
    """Return the template that a revision keeps."""
    kept = revision.data.get("spec", {}).get("template", {})
    return {name: value for name, value in kept.items() if name != "$patch"}


def in_order(revisions: Iterable[ControllerRevision]) -> list[ControllerRevision]:
    """Return the oldest revision first."""
    return sorted(revisions, key=lambda each: (each.revision, each.age_key))


def superfluous(history: History, *, live: Collection[str], limit: int) -> Sequence[ControllerRevision]:
    """Return the oldest revisions that nothing uses, but for as many as are to be kept."""
    dead = [each for each in history.revisions if each.name not in live and each is not history.latest]
    return dead[: max(len(dead) - limit, 0)]


async def kept_history(
    caches: Caches, owner: Owned, template: RawObject, *, resource: Resource[Any], mark: str, collisions: int
) -> History:
    """Return the history of `owner`, in which its template is the latest; `mark` is the label for its hash."""
    client, cache = caches.client, caches.revisions
    revisions = in_order(controlled(cache, owner.uid))
    number = revisions[-1].revision + 1 if revisions else 1
    equal = [each for each in revisions if template_of(each) == template]
    async with edge.Writes(cache) as writes:
        if equal and equal[-1] is revisions[-1]:
            latest = equal[-1]
        elif equal:
            latest = await edge.change(client, REVISIONS, equal[-1], {"revision": number})
            writes.made(latest)
        else:
            while True:
                body = _revision(owner, template, number, resource=resource, mark=mark, collisions=collisions)
                found = await _created(caches, body, template)
                if found is not None:
                    break
                collisions += 1
            latest = found
            writes.made(latest)
    others = [each for each in revisions if each.uid != latest.uid]
    return History((*others, latest), latest, collisions)


async def _created(caches: Caches, body: RawObject, template: RawObject) -> ControllerRevision | None:
    """Return the new revision, or None if another one has its name."""
    metadata = body["metadata"]
    try:
        return await edge.create(caches.client, REVISIONS, body)
    except AlreadyExists:
        found = await caches.client.get(REVISIONS, metadata["name"], namespace=metadata["namespace"])
    ours = found.controller_uid == metadata["ownerReferences"][0]["uid"] and template_of(found) == template
    return found if ours else None


def _revision(
    owner: Owned, template: RawObject, number: int, *, resource: Resource[Any], mark: str, collisions: int
) -> RawObject:
    hashed = fingerprint(template, collisions=collisions)
    return {
        "apiVersion": REVISIONS.api_version,
        "kind": REVISIONS.kind,
        "metadata": {
            "name": f"{owner.name}-{hashed}",
            "namespace": owner.namespace,
            "labels": {**template.get("metadata", {}).get("labels", {}), mark: hashed},
            "ownerReferences": [reference(owner, resource)],
        },
        "data": {"spec": {"template": {**template, "$patch": "replace"}}},
        "revision": number,
    }
