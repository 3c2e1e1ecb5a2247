"""Faults that tests inject between a client and the API server.

    transport.faults.fail_before_effect(method="PUT", path="leases", response=503, times=2)
    transport.faults.fail_after_effect(method="PATCH", path="nodes")   # it took effect, but the response is lost
    transport.faults.drop(path="pods", times=3)                        # events of a watch

A rule counts the requests (or lines of watches) that it matches: it skips the first `skip`, applies to the next `times`
(None: all), and is then spent. All matching rules apply; of several different responses that of the first rule wins.
`FaultRule.hits` tells a test that its fault occurred.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Generic, TypedDict, TypeVar, Unpack

import msgspec

from haulout.errors import KubeError, Unreachable
from haulout.kube.transport import Request, Response
from haulout_sandbox.apiserver.status import generic_status
from haulout_sandbox.apiserver.status import json_response as json_answer

FaultPlan = TypeVar("FaultPlan")
Outcome = Response | KubeError


class RequestMatch(TypedDict, total=False):
    """Which requests or watches a rule applies to; all by default."""

    method: str
    path: str  # a substring of the path
    where: Callable[[Request], bool]
    skip: int
    times: int | None


@dataclass(slots=True)
class RequestFaults:
    delay: timedelta = timedelta()
    before_effect: Outcome | None = None  # instead of the effect
    after_effect: Outcome | None = None  # instead of the response
    never_arrives: bool = False
    never_responds: bool = False
    arrives_after: timedelta | None = None
    as_of: int | None = None
    staleness: timedelta | None = None


@dataclass(slots=True)
class EventFaults:
    """The faults of one line of a watch."""

    delay: timedelta = timedelta()
    transform: Callable[[bytes], list[bytes]] | None = None
    swap: bool = False
    error: KubeError | None = None  # instead of the line
    error_after: KubeError | None = None  # after the line


_NO_REQUEST_FAULTS = RequestFaults()
_NO_EVENT_FAULTS = EventFaults()


@dataclass(slots=True, kw_only=True, eq=False)
class FaultRule(Generic[FaultPlan]):
    """A fault, and the requests or lines that it applies to."""

    matches: Callable[[Request], bool]
    inject: Callable[[FaultPlan], None]
    skip: int
    times: int | None
    hits: int = field(default=0, init=False)

    def apply(self, request: Request, faults: FaultPlan) -> None:
        """Apply the fault if `skip` and `times` say so."""
        if self.times is not None and self.hits >= self.times:
            return
        if not self.matches(request):
            return
        if self.skip:
            self.skip -= 1
            return
        self.hits += 1
        self.inject(faults)


class Faults:
    def __init__(self) -> None:
        self._request_rules: list[FaultRule[RequestFaults]] = []
        self._event_rules: list[FaultRule[EventFaults]] = []

    @property
    def affects_events(self) -> bool:
        """Return whether any rule is about lines of watches."""
        return bool(self._event_rules)

    def clear(self) -> None:
        self._request_rules.clear()
        self._event_rules.clear()

    def remove(self, *rules: FaultRule[RequestFaults] | FaultRule[EventFaults]) -> None:
        """Remove these rules, spent or not."""
        self._request_rules = [rule for rule in self._request_rules if rule not in rules]
        self._event_rules = [rule for rule in self._event_rules if rule not in rules]

    def for_request(self, request: Request) -> RequestFaults:
        if not self._request_rules:
            return _NO_REQUEST_FAULTS
        faults = RequestFaults()
        for rule in self._request_rules:
            rule.apply(request, faults)
        return faults

    def for_event(self, request: Request) -> EventFaults:
        """Return the faults of the next line of the watch that `request` opened."""
        if not self._event_rules:
            return _NO_EVENT_FAULTS
        faults = EventFaults()
        for rule in self._event_rules:
            rule.apply(request, faults)
        return faults

    def fail_before_effect(
        self, *, response: int | Outcome | None = None, retry_after: int = 0, **match: Unpack[RequestMatch]
    ) -> FaultRule[RequestFaults]:
        """Fail without effect: return a status code's Status or a `Response`, or raise (default: refuse connection)."""
        outcome = _outcome_of(response, retry_after, Unreachable("connection refused", sent=False))

        def inject(faults: RequestFaults) -> None:
            faults.before_effect = faults.before_effect or outcome

        return self._add_request_rule(inject, match)

    def fail_after_effect(
        self, *, response: int | Outcome | None = None, retry_after: int = 0, **match: Unpack[RequestMatch]
    ) -> FaultRule[RequestFaults]:
        """Let the request take effect, then return another response; by default the connection breaks."""
        outcome = _outcome_of(response, retry_after, Unreachable("connection reset by peer", sent=True))

        def inject(faults: RequestFaults) -> None:
            faults.after_effect = faults.after_effect or outcome

        return self._add_request_rule(inject, match)

    def delay(self, by: timedelta, **match: Unpack[RequestMatch]) -> FaultRule[RequestFaults]:
        """Delay a request on its way to the server."""

        def inject(faults: RequestFaults) -> None:
            faults.delay += by

        return self._add_request_rule(inject, match)

    def hang(self, *, takes_effect: bool = False, **match: Unpack[RequestMatch]) -> FaultRule[RequestFaults]:
        """Never respond."""

        def inject(faults: RequestFaults) -> None:
            faults.never_arrives, faults.never_responds = not takes_effect, True

        return self._add_request_rule(inject, match)

    def delay_effect(self, by: timedelta, **match: Unpack[RequestMatch]) -> FaultRule[RequestFaults]:
        """Never respond, and take effect after `by`, even if the client has given up."""

        def inject(faults: RequestFaults) -> None:
            faults.arrives_after = by

        return self._add_request_rule(inject, match)

    def stale(self, as_of: int | timedelta, **match: Unpack[RequestMatch]) -> FaultRule[RequestFaults]:
        """Serve reads, and the initial events of watches, from the past: an older revision, or so long ago."""

        def inject(faults: RequestFaults) -> None:
            if isinstance(as_of, timedelta):
                faults.staleness = as_of
            else:
                faults.as_of = as_of

        return self._add_request_rule(inject, match)

    def transform_event(
        self, transform: Callable[[bytes], list[bytes]], **match: Unpack[RequestMatch]
    ) -> FaultRule[EventFaults]:
        """Replace a line by the lines that `transform` returns."""

        def inject(faults: EventFaults) -> None:
            faults.transform = faults.transform or transform

        return self._add_event_rule(inject, match)

    def drop(self, **match: Unpack[RequestMatch]) -> FaultRule[EventFaults]:
        """Lose an event."""
        return self.transform_event(lambda _: [], **match)

    def duplicate(self, **match: Unpack[RequestMatch]) -> FaultRule[EventFaults]:
        """Deliver an event twice."""
        return self.transform_event(lambda line: [line, line], **match)

    def expire_watch(self, **match: Unpack[RequestMatch]) -> FaultRule[EventFaults]:
        """Send an ERROR event with 410 Gone in the middle of a watch, instead of an event."""
        error = msgspec.json.encode({"type": "ERROR", "object": generic_status(410)})
        return self.transform_event(lambda _: [error], **match)

    def delay_event(self, by: timedelta, **match: Unpack[RequestMatch]) -> FaultRule[EventFaults]:
        """Delay an event, and all that follow it."""

        def inject(faults: EventFaults) -> None:
            faults.delay += by

        return self._add_event_rule(inject, match)

    def reorder(self, **match: Unpack[RequestMatch]) -> FaultRule[EventFaults]:
        """Deliver an event after the one that follows it."""

        def inject(faults: EventFaults) -> None:
            faults.swap = True

        return self._add_event_rule(inject, match)

    def break_stream(self, *, after_lines: int = 0, **match: Unpack[RequestMatch]) -> FaultRule[EventFaults]:
        """Break a watch after `after_lines` more lines; with 0, instead of the next line."""
        error = Unreachable("the stream broke off", sent=True)

        def inject(faults: EventFaults) -> None:
            if after_lines:
                faults.error_after = error
            else:
                faults.error = error

        return self._add_event_rule(inject, {**match, "skip": match.get("skip", 0) + max(after_lines - 1, 0)})

    def truncate(self, **match: Unpack[RequestMatch]) -> FaultRule[EventFaults]:
        """End a watch in the middle of a line, which the HTTP transport also reports as a broken stream."""
        error = Unreachable("the stream broke off in the middle of a line", sent=True)

        def inject(faults: EventFaults) -> None:
            faults.error = error

        return self._add_event_rule(inject, match)

    def _add_request_rule(
        self, inject: Callable[[RequestFaults], None], match: RequestMatch
    ) -> FaultRule[RequestFaults]:
        rule = FaultRule(matches=_matcher(match), inject=inject, skip=match.get("skip", 0), times=match.get("times", 1))
        self._request_rules.append(rule)
        return rule

    def _add_event_rule(self, inject: Callable[[EventFaults], None], match: RequestMatch) -> FaultRule[EventFaults]:
        rule = FaultRule(matches=_matcher(match), inject=inject, skip=match.get("skip", 0), times=match.get("times", 1))
        self._event_rules.append(rule)
        return rule


def matches(request: Request, *, method: str = "", path: str = "") -> bool:
    """Return whether `request` has this method, and `path` in its path; empty means any."""
    return method in ("", request.method) and path in request.path


def _matcher(match: RequestMatch) -> Callable[[Request], bool]:
    method, path, condition = match.get("method", ""), match.get("path", ""), match.get("where")
    return lambda request: matches(request, method=method, path=path) and (condition is None or condition(request))


def _outcome_of(response: int | Outcome | None, retry_after: int, default: KubeError) -> Outcome:
    if isinstance(response, int):
        return json_answer(response, generic_status(response, retry_after=retry_after))
    return default if response is None else response
