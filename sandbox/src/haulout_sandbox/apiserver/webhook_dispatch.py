"""Asks the webhooks, in the order and the way of `apiserver/pkg/admission/plugin/webhook` of Kubernetes 1.36.

Mutating ones are asked one after the other, by the names of their configurations, and once more if they want to see
what later ones changed; validating ones all at once. A verdict that is not in yet is asked for by `NeedsAdmission`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from haulout_sandbox.apiserver import webhooks
from haulout_sandbox.apiserver.builtin_kinds import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from haulout_sandbox.apiserver.changes import Change
from haulout_sandbox.apiserver.kinds import JsonObject, Kind
from haulout_sandbox.apiserver.patches import same_json
from haulout_sandbox.apiserver.status import Refused
from haulout_sandbox.apiserver.store import Store
from haulout_sandbox.apiserver.webhooks import NeedsAdmission, Question, Told, Verdict, Webhook

Make = Callable[[JsonObject], JsonObject]


@dataclass(frozen=True, slots=True)
class Hearing:
    """What webhooks have said so far about a request, and where their warnings go."""

    verdicts: Mapping[str, Verdict]
    warnings: list[str]


class Webhooks:
    """The webhooks of the configurations in a store; `new_uid` names a question."""

    def __init__(self, store: Store, kinds: Callable[[], Iterable[Kind]], new_uid: Callable[[], str]) -> None:
        self._store = store
        self._kinds = kinds
        self._new_uid = new_uid
        self._parsed: dict[Kind, tuple[tuple[str, ...], list[Webhook]]] = {}

    @property
    def in_force(self) -> bool:
        """Tell whether there are any."""
        return bool(self._store.current(MUTATING_WEBHOOKS) or self._store.current(VALIDATING_WEBHOOKS))

    def mutated(
        self, change: Change, namespace: JsonObject | None, hearing: Hearing, *, default: Make, complete: Make
    ) -> JsonObject | None:
        """Return the object as the mutating webhooks want it.

        After each of them it gets its defaults; before they are asked a second time, `complete` does all that the
        server itself does.
        """
        eager: set[str] = set()  # who were asked, and want to know what others do after them
        again: set[str] = set()
        changed = False
        for is_second in (False, True):
            if is_second and not changed:
                break
            if is_second and change.obj is not None:
                completed = complete(change.obj)
                if not same_json(completed, change.obj):
                    again, eager = again | eager, set()
                change = replace(change, obj=completed)
            for webhook in self._webhooks(MUTATING_WEBHOOKS):
                told = webhook.wants(change, namespace, self._kinds())
                if told is None or (is_second and webhook.id not in again):
                    continue
                new = webhooks.patched(webhook, told, self._verdict(webhook, told, hearing), hearing.warnings)
                if new is not None:
                    new = default(new | {"apiVersion": change.api_version})
                    if not same_json(new, change.obj):
                        again, eager, changed = again | eager, set(), True
                    change = replace(change, obj=new)
                if webhook.reinvokes:
                    eager.add(webhook.id)
        return change.obj

    def check(self, change: Change, namespace: JsonObject | None, hearing: Hearing) -> None:
        """Refuse if a validating webhook does."""
        asked = [
            (webhook, told)
            for webhook in self._webhooks(VALIDATING_WEBHOOKS)
            if (told := webhook.wants(change, namespace, self._kinds())) is not None
        ]
        unknown = [
            self._question(webhook, told) for webhook, told in asked if told.key(webhook) not in hearing.verdicts
        ]
        if unknown:
            raise NeedsAdmission(unknown)
        refusals: list[Refused] = []
        for webhook, told in asked:
            try:
                webhooks.respect(webhook, told, self._verdict(webhook, told, hearing), hearing.warnings)
            except Refused as refused:
                refusals.append(refused)
        if refusals:
            raise refusals[0]  # the real server gives the one that it heard first

    def _verdict(self, webhook: Webhook, told: Told, hearing: Hearing) -> Verdict:
        verdict = hearing.verdicts.get(told.key(webhook))
        if verdict is None:
            raise NeedsAdmission([self._question(webhook, told)])
        return verdict

    def _question(self, webhook: Webhook, told: Told) -> Question:
        return webhooks.question(webhook, told, uid=self._new_uid())

    def _webhooks(self, kind: Kind) -> list[Webhook]:
        """Return the webhooks of a kind of configuration, in the order in which they are asked."""
        objects = self._store.current(kind)
        if not objects:
            return []
        versions = tuple(it["metadata"]["resourceVersion"] for it in objects.values())
        known = self._parsed.get(kind)
        if known is None or known[0] != versions:
            parsed = [it for name in sorted(objects) for it in webhooks.parsed(objects[name])]
            known = self._parsed[kind] = versions, parsed
        return known[1]
