"""Compute of OCI: instances, and the maintenance that is planned for them."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from haulout.core.clock import Clock
from haulout.errors import CloudError
from haulout_sandbox.clouds.oci.written import instant, written

_PAGE = 50

Document = dict[str, Any]


@dataclass(slots=True)
class Machines:
    """All instances and their maintenance events, by OCID."""

    clock: Clock
    page_size: int = _PAGE
    instances: dict[str, Document] = field(default_factory=dict)
    events: dict[str, Document] = field(default_factory=dict)
    _changes: dict[str, int] = field(default_factory=dict)
    _done: dict[str, str] = field(default_factory=dict)  # tokens of requests, and what they were about

    # The four calls

    def list_events(self, query: dict[str, str]) -> tuple[list[Document], str]:
        """Return a page of maintenance events, and the name of the next page if there is one."""
        compartment = query.get("compartmentId")
        if not compartment:
            raise CloudError("compartmentId is required", doing="list", status=400, code="MissingParameter")
        found = [it for it in self.events.values() if it["compartmentId"] == compartment]
        for key in ("instanceId", "lifecycleState", "correlationToken", "instanceAction"):
            if key in query:
                found = [it for it in found if it.get(key) == query[key]]
        first = int(query.get("page") or 0)
        size = min(int(query.get("limit") or self.page_size), self.page_size)
        shown = [_summary(it) for it in found[first : first + size]]
        return shown, str(first + size) if first + size < len(found) else ""

    def get_event(self, event: str) -> tuple[Document, str]:
        """Return one, and its etag."""
        found = self.events.get(event)
        if found is None:
            raise _not_found(event)
        return dict(found), self._etag(event)

    def update_event(self, event: str, details: Document, *, etag: str = "", token: str = "") -> None:
        """Move one, if that is allowed; the same request again, by its token, changes nothing."""
        found, now = self.get_event(event)
        if token and self._done.get(token) == event:
            return
        if etag not in ("", now):
            raise CloudError("the etag does not match", doing="update", status=412, code="NoEtagMatch")
        if "timeWindowStart" in details:
            start = instant(details["timeWindowStart"])
            self._check_move(found, start)
            self.change(event, timeWindowStart=written(start))
        if token:
            self._done[token] = event

    def get_instance(self, instance_id: str) -> Document:
        """Return an instance."""
        found = self.instances.get(instance_id)
        if found is None:
            raise _not_found(instance_id)
        return dict(found)

    # What happens

    def change(self, event: str, **changed: Any) -> Document:
        """Change an event; return it."""
        self._changes[event] = self._changes.get(event, 0) + 1
        known = self.events.get(event, {})
        self.events[event] = {key: value for key, value in (known | changed).items() if value is not None}
        return self.events[event]

    def _check_move(self, event: Document, start: datetime) -> None:
        if event["lifecycleState"] != "SCHEDULED" or not event["canReschedule"]:
            raise CloudError("it cannot be rescheduled", doing="update", status=409, code="IncorrectState")
        due = event.get("timeHardDueDate")
        if start <= self.clock.now() or (due and start > instant(due)):
            raise CloudError("timeWindowStart is out of range", doing="update", status=400, code="InvalidParameter")

    def _etag(self, event: str) -> str:
        return f"etag-{self._changes.get(event, 0)}"


def _summary(event: Document) -> Document:
    left_out = ("lifecycleDetails", "canDeleteLocalStorage", "additionalDetails")
    return {key: value for key, value in event.items() if key not in left_out}


def _not_found(what: str) -> CloudError:
    message = f"Authorization failed or requested resource not found: {what}"
    return CloudError(message, doing="get", status=404, code="NotAuthorizedOrNotFound")
