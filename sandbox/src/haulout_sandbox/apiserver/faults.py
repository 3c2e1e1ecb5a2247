"""What can go wrong between a client and the sandbox's API server, told in advance.

    transport.faults.before(method="PUT", path="leases", answer=503, times=2)
    transport.faults.after(method="PATCH", path="nodes")           # it took effect, but nobody heard of it
    transport.faults.drop(path="pods", times=3)                    # of a watch

A rule counts the requests (or lines of watches) it matches: it lets `skip` pass, strikes `times` (None: always), and is
spent. Every matching rule strikes; where two want different answers the first told wins. `Rule.hits` tells a test
that its fault happened.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Generic, TypedDict, TypeVar, Unpack

import msgspec

from haulout.errors import KubeError, Unreachable
from haulout.kube.transport import Request, Response
from haulout_sandbox.apiserver.status import answer as json_answer
from haulout_sandbox.apiserver.status import generic

Plan = TypeVar("Plan")
Outcome = Response | KubeError


class When(TypedDict, total=False):
    """Which requests, or watches, a rule is about; all of them by default."""

    method: str
    path: str  # a part of it
    where: Callable[[Request], bool]
    skip: int
    times: int | None


@dataclass(slots=True)
class RequestPlan:
    """What happens to one request."""

    delay: timedelta = timedelta()
    before: Outcome | None = None  # instead of the effect
    after: Outcome | None = None  # instead of the answer
    never_arrives: bool = False
    never_answers: bool = False
    arrives_late: timedelta | None = None
    as_of: int | None = None
    behind: timedelta | None = None


@dataclass(slots=True)
class LinePlan:
    """What happens to one line of a watch."""

    delay: timedelta = timedelta()
    change: Callable[[bytes], list[bytes]] | None = None
    swap: bool = False
    fails: KubeError | None = None  # instead of the line
    then_fails: KubeError | None = None  # after it


_UNHARMED_REQUEST = RequestPlan()
_UNHARMED_LINE = LinePlan()


@dataclass(slots=True, kw_only=True, eq=False)
class Rule(Generic[Plan]):
    """One fault and whom it strikes."""

    matches: Callable[[Request], bool]
    strike: Callable[[Plan], None]
    skip: int
    times: int | None
    hits: int = field(default=0, init=False)

    def apply(self, request: Request, plan: Plan) -> None:
        """Strike if it is this one's turn."""
        if self.times is not None and self.hits >= self.times:
            return
        if not self.matches(request):
            return
        if self.skip:
            self.skip -= 1
            return
        self.hits += 1
        self.strike(plan)


class Faults:
    """The faults of one transport."""

    def __init__(self) -> None:
        self._requests: list[Rule[RequestPlan]] = []
        self._lines: list[Rule[LinePlan]] = []

    @property
    def strike_lines(self) -> bool:
        """Whether something may happen to the lines of watches."""
        return bool(self._lines)

    def clear(self) -> None:
        """Forget all rules."""
        self._requests.clear()
        self._lines.clear()

    def lift(self, *rules: Rule[RequestPlan] | Rule[LinePlan]) -> None:
        """Forget these rules, spent or not."""
        self._requests = [rule for rule in self._requests if rule not in rules]
        self._lines = [rule for rule in self._lines if rule not in rules]

    def for_request(self, request: Request) -> RequestPlan:
        """Return what happens to `request`."""
        if not self._requests:
            return _UNHARMED_REQUEST
        plan = RequestPlan()
        for rule in self._requests:
            rule.apply(request, plan)
        return plan

    def for_line(self, request: Request) -> LinePlan:
        """Return what happens to the next line of the watch that `request` opened."""
        if not self._lines:
            return _UNHARMED_LINE
        plan = LinePlan()
        for rule in self._lines:
            rule.apply(request, plan)
        return plan

    def before(
        self, *, answer: int | Outcome | None = None, retry_after: int = 0, **when: Unpack[When]
    ) -> Rule[RequestPlan]:
        """Have no effect: answer with a code's usual Status or a whole `Response`, or raise (by default: refused)."""
        outcome = _outcome(answer, retry_after, Unreachable("connection refused", sent=False))

        def strike(plan: RequestPlan) -> None:
            plan.before = plan.before or outcome

        return self._on_requests(strike, when)

    def after(
        self, *, answer: int | Outcome | None = None, retry_after: int = 0, **when: Unpack[When]
    ) -> Rule[RequestPlan]:
        """Let it take effect, then answer something else: by default the connection breaks."""
        outcome = _outcome(answer, retry_after, Unreachable("connection reset by peer", sent=True))

        def strike(plan: RequestPlan) -> None:
            plan.after = plan.after or outcome

        return self._on_requests(strike, when)

    def slow(self, by: timedelta, **when: Unpack[When]) -> Rule[RequestPlan]:
        """Take longer on the way to the server."""

        def strike(plan: RequestPlan) -> None:
            plan.delay += by

        return self._on_requests(strike, when)

    def hang(self, *, takes_effect: bool = False, **when: Unpack[When]) -> Rule[RequestPlan]:
        """Never answer."""

        def strike(plan: RequestPlan) -> None:
            plan.never_arrives, plan.never_answers = not takes_effect, True

        return self._on_requests(strike, when)

    def straggle(self, by: timedelta, **when: Unpack[When]) -> Rule[RequestPlan]:
        """Never answer, and take effect only `by` later, even if the client gave up long ago."""

        def strike(plan: RequestPlan) -> None:
            plan.arrives_late = by

        return self._on_requests(strike, when)

    def stale(self, as_of: int | timedelta, **when: Unpack[When]) -> Rule[RequestPlan]:
        """Serve reads, and the first events of watches that start with all objects, as they were.

        That is at an older revision, or so long ago.
        """

        def strike(plan: RequestPlan) -> None:
            if isinstance(as_of, timedelta):
                plan.behind = as_of
            else:
                plan.as_of = as_of

        return self._on_requests(strike, when)

    def tamper(self, change: Callable[[bytes], list[bytes]], **when: Unpack[When]) -> Rule[LinePlan]:
        """Deliver what `change` makes of a line."""

        def strike(plan: LinePlan) -> None:
            plan.change = plan.change or change

        return self._on_lines(strike, when)

    def drop(self, **when: Unpack[When]) -> Rule[LinePlan]:
        """Lose an event."""
        return self.tamper(lambda _: [], **when)

    def repeat(self, **when: Unpack[When]) -> Rule[LinePlan]:
        """Deliver an event twice."""
        return self.tamper(lambda line: [line, line], **when)

    def expire(self, **when: Unpack[When]) -> Rule[LinePlan]:
        """Say in the middle of a watch, instead of an event, that its revision is too old (410)."""
        error = msgspec.json.encode({"type": "ERROR", "object": generic(410)})
        return self.tamper(lambda _: [error], **when)

    def late(self, by: timedelta, **when: Unpack[When]) -> Rule[LinePlan]:
        """Hold up an event, and all that follow it."""

        def strike(plan: LinePlan) -> None:
            plan.delay += by

        return self._on_lines(strike, when)

    def swap(self, **when: Unpack[When]) -> Rule[LinePlan]:
        """Deliver an event after the one that follows it."""

        def strike(plan: LinePlan) -> None:
            plan.swap = True

        return self._on_lines(strike, when)

    def break_stream(self, *, after: int = 0, **when: Unpack[When]) -> Rule[LinePlan]:
        """Break a watch once `after` more lines came through; with 0, instead of the next line."""
        error = Unreachable("the stream broke off", sent=True)

        def strike(plan: LinePlan) -> None:
            if after:
                plan.then_fails = error
            else:
                plan.fails = error

        return self._on_lines(strike, {**when, "skip": when.get("skip", 0) + max(after - 1, 0)})

    def garble(self, **when: Unpack[When]) -> Rule[LinePlan]:
        """End a watch in the middle of a line, which the HTTP transport also reports as a break."""
        error = Unreachable("the stream broke off in the middle of a line", sent=True)

        def strike(plan: LinePlan) -> None:
            plan.fails = error

        return self._on_lines(strike, when)

    def _on_requests(self, strike: Callable[[RequestPlan], None], when: When) -> Rule[RequestPlan]:
        rule = Rule(matches=_matcher(when), strike=strike, skip=when.get("skip", 0), times=when.get("times", 1))
        self._requests.append(rule)
        return rule

    def _on_lines(self, strike: Callable[[LinePlan], None], when: When) -> Rule[LinePlan]:
        rule = Rule(matches=_matcher(when), strike=strike, skip=when.get("skip", 0), times=when.get("times", 1))
        self._lines.append(rule)
        return rule


def matches(request: Request, *, method: str = "", path: str = "") -> bool:
    """Tell whether `request` has this method and `path` in its path; empty means any."""
    return method in ("", request.method) and path in request.path


def _matcher(when: When) -> Callable[[Request], bool]:
    method, path, where = when.get("method", ""), when.get("path", ""), when.get("where")
    return lambda request: matches(request, method=method, path=path) and (where is None or where(request))


def _outcome(wanted: int | Outcome | None, retry_after: int, default: KubeError) -> Outcome:
    if isinstance(wanted, int):
        return json_answer(wanted, generic(wanted, retry_after=retry_after))
    return default if wanted is None else wanted
