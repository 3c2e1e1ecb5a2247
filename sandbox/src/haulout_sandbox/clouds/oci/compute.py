"""Compute of OCI: instances, and their maintenance events."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from haulout.core.clock import Clock
from haulout.errors import CloudError
from haulout_sandbox.clouds.oci.time_format import format_time, parse_time

_PAGE_SIZE = 50

Document = dict[str, Any]


@dataclass(slots=True)
class ComputeService:
    """All instances and maintenance events, by OCID."""

    clock: Clock
    page_size: int = _PAGE_SIZE
    instances: dict[str, Document] = field(default_factory=dict)
    events: dict[str, Document] = field(default_factory=dict)
    _event_versions: dict[str, int] = field(default_factory=dict)
    _applied_tokens: dict[str, str] = field(default_factory=dict)  # retry tokens, and what they were used for

    # API calls

    def list_events(self, query: dict[str, str]) -> tuple[list[Document], str]:
        """Return a page of maintenance events, and the next page, if any."""
        compartment = query.get("compartmentId")
        if not compartment:
            raise CloudError("compartmentId is required", doing="list", status=400, code="MissingParameter")
        matching = [event for event in self.events.values() if event["compartmentId"] == compartment]
        for key in ("instanceId", "lifecycleState", "correlationToken", "instanceAction"):
            if key in query:
                matching = [event for event in matching if event.get(key) == query[key]]
        first = int(query.get("page") or 0)
        size = min(int(query.get("limit") or self.page_size), self.page_size)
        summaries = [_summary(event) for event in matching[first : first + size]]
        return summaries, str(first + size) if first + size < len(matching) else ""

    def get_event(self, event: str) -> tuple[Document, str]:
        """Return a maintenance event and its etag."""
        document = self.events.get(event)
        if document is None:
            raise _not_found(event)
        return dict(document), self._etag(event)

    def update_event(self, event: str, details: Document, *, etag: str = "", token: str = "") -> None:
        """Reschedule an event if allowed; a request repeated with the same retry token changes nothing."""
        current, current_etag = self.get_event(event)
        if token and self._applied_tokens.get(token) == event:
            return
        if etag not in ("", current_etag):
            raise CloudError("the etag does not match", doing="update", status=412, code="NoEtagMatch")
        if "timeWindowStart" in details:
            start = parse_time(details["timeWindowStart"])
            self._check_reschedule(current, start)
            self.patch_event(event, timeWindowStart=format_time(start))
        if token:
            self._applied_tokens[token] = event

    def get_instance(self, instance_id: str) -> Document:
        document = self.instances.get(instance_id)
        if document is None:
            raise _not_found(instance_id)
        return dict(document)

    # Simulated events

    def patch_event(self, event: str, **changed: Any) -> Document:
        """Change an event; return it."""
        self._event_versions[event] = self._event_versions.get(event, 0) + 1
        current = self.events.get(event, {})
        self.events[event] = {key: value for key, value in (current | changed).items() if value is not None}
        return self.events[event]

    def _check_reschedule(self, event: Document, start: datetime) -> None:
        if event["lifecycleState"] != "SCHEDULED" or not event["canReschedule"]:
            raise CloudError("it cannot be rescheduled", doing="update", status=409, code="IncorrectState")
        hard_due_date = event.get("timeHardDueDate")
        if start <= self.clock.now() or (hard_due_date and start > parse_time(hard_due_date)):
            raise CloudError("timeWindowStart is out of range", doing="update", status=400, code="InvalidParameter")

    def _etag(self, event: str) -> str:
        return f"etag-{self._event_versions.get(event, 0)}"


def _summary(event: Document) -> Document:
    excluded = ("lifecycleDetails", "canDeleteLocalStorage", "additionalDetails")
    return {key: value for key, value in event.items() if key not in excluded}


def _not_found(ocid: str) -> CloudError:
    message = f"Authorization failed or requested resource not found: {ocid}"
    return CloudError(message, doing="get", status=404, code="NotAuthorizedOrNotFound")
