"""One step of a node: where each of its profiles stands, what passes and why, and what is to be done about it.

    result = step(subject, profiles)

It is pure. What it returns is performed in this order (`haulout.profiles.controller`): what must be taken first (slots
and leases, by compare-and-swap), what is changed elsewhere, the node in one write with all that belongs together, and
at last what people are told. A crash in between repeats only what can be repeated.

For each profile, in the order of the node's label: the chain of the state it has just entered; the notifications of the
state; the checks of all transitions out of it; the trigger chain of the first that passes. Profiles do not disturb each
other: what goes wrong in one is told, and concerns no other. Only one of them is in maintenance at a time.

A transition that has begun (its slot is taken, its drain runs) is brought to its end, whatever its checks say
meanwhile: `pending` remembers it, in an annotation of our own.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from haulout.drain.cordon import BadMark
from haulout.drain.policy import Policy
from haulout.kube.objects import Node
from haulout.profiles.draft import Draft
from haulout.profiles.model import Member, Profile, StateConfig, Transition
from haulout.profiles.plugin import (
    Claim,
    Cordon,
    Drain,
    Entry,
    PatchHypervisor,
    Scene,
    Sights,
    SlotClaim,
    State,
    Trigger,
    Verdict,
)


@dataclass(frozen=True, slots=True)
class DrainSeen:
    """How it stands with a drain on behalf of a profile."""

    is_done: bool
    words: str  # what it waits for
    problem: str = ""  # it has ended without the node being empty


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A node, and all that a step must know about it."""

    node: Node
    entries: Mapping[str, Entry]  # by profile: its data
    notified: Mapping[str, datetime | None]  # by instance: when it was sent last
    pending: Mapping[str, State]  # by profile: where a transition that has begun leads to
    drains: Mapping[str, DrainSeen] = field(default_factory=dict)  # by profile
    refused: Mapping[str, str] = field(default_factory=dict)  # by profile: why what it claimed was not to be had
    sights: Sights
    requeue: timedelta
    now: datetime
    logs_details: bool = False


# What comes of it


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What a check said."""

    type: str
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class TransitionReport:
    """How it stands with one transition."""

    target: State
    expression: str
    chain_passed: bool
    passed: bool  # and nothing else stands in its way
    checks: Mapping[str, CheckReport]  # by instance
    error: str = ""
    veto: str = ""  # what else stands in its way


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileReport:
    """How it stands with one profile."""

    name: str
    state: str
    next: str
    transitions: tuple[TransitionReport, ...] = ()
    error: str = ""
    waits_for: str = ""  # a chain that has begun and is not done yet
    failed: str = ""  # which part went wrong, in the words of events


@dataclass(frozen=True, slots=True)
class Sending:
    """A notification that is to be sent."""

    instance: str
    profile: str
    state: State


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What is to be done about a node."""

    draft: Draft
    entries: Mapping[str, Entry]
    notified: Mapping[str, datetime | None]
    pending: Mapping[str, State]
    reports: tuple[ProfileReport, ...]
    claims: tuple[tuple[str, Claim], ...] = ()  # with the profile that they are for
    hypervisors: tuple[PatchHypervisor, ...] = ()
    drains: Mapping[str, Policy] = field(default_factory=dict)  # by profile: those that must run
    sendings: tuple[Sending, ...] = ()
    wakes_at: datetime | None = None
    topics: frozenset[str] = frozenset()

    @property
    def state(self) -> State:
        """The state of the node as a whole."""
        return aggregate(report.next for report in self.reports)


def aggregate(states: Iterable[str]) -> State:
    """Return the state of a node by those of its profiles."""
    known = set(states)
    return next((it for it in (State.IN_MAINTENANCE, State.REQUIRED) if it in known), State.OPERATIONAL)


def step(subject: Subject, profiles: Mapping[str, Profile], attached: tuple[str, ...]) -> Result:
    """Return what is to be done; `attached` are the names of the node's profiles, in order."""
    walk = _Walk(subject, profiles)
    for name in dict.fromkeys(attached):
        walk.visit(name)
    walk.forget_detached(attached)
    return walk.result()


class _NotYet(Exception):
    """A chain has begun and must wait."""


class _Failed(Exception):
    """Something in a profile went wrong; `part` in the words of events, `transitions` as far as they were looked at."""

    def __init__(self, part: str, why: str, transitions: tuple[TransitionReport, ...] = ()) -> None:
        super().__init__(why)
        self.part = part
        self.transitions = transitions


class _Walk:
    """One step in the making."""

    def __init__(self, subject: Subject, profiles: Mapping[str, Profile]) -> None:
        self.subject = subject
        self.profiles = profiles
        self.draft = Draft.of(subject.node, now=subject.now)
        self.entries = dict(subject.entries)
        self.notified = dict(subject.notified)
        self.pending = dict(subject.pending)
        self.reports: list[ProfileReport] = []
        self.claims: list[tuple[str, Claim]] = []
        self.hypervisors: list[PatchHypervisor] = []
        self.drains: dict[str, Policy] = {}
        self.sendings: list[Sending] = []
        self.wakes: list[datetime] = []
        self.topics: set[str] = set()
        # As at the beginning: whoever leaves maintenance in this step still blocks the others.
        self.in_maintenance = {
            name
            for name, entry in subject.entries.items()
            if entry.current == State.IN_MAINTENANCE and name in profiles
        }

    # One profile

    def visit(self, name: str) -> None:
        """Evaluate a profile, if there is one of this name; one that is new to the node is operational."""
        profile = self.profiles.get(name)
        if profile is None:
            return
        now = self.subject.now
        new = Entry(current=State.OPERATIONAL, previous=State.OPERATIONAL, transition=now)
        entry = self.entries.setdefault(name, new)
        try:
            state = State(entry.current)
        except ValueError:
            why = f"its data says that it is in the state {entry.current!r}, expected one of {', '.join(State)}"
            self.reports.append(ProfileReport(name=name, state=entry.current, next=entry.current, error=why))
            return
        self._evaluate(profile, state, entry)

    def _evaluate(self, profile: Profile, state: State, entry: Entry) -> None:
        name, config = profile.name, profile.states[state]
        report = ProfileReport(name=name, state=state, next=state)
        before = self.draft, len(self.claims), len(self.hypervisors)
        transitions: tuple[TransitionReport, ...] = ()
        try:
            if entry.previous != entry.current:
                self._run(config.enter, profile, state, f"Failed to enter state {state}")
            self._notify(config, profile, state, entry)
            chosen, transitions = self._choose(config, profile, state, entry)
            following = state if chosen is None else self._move(chosen, profile, state)
        except _NotYet as waiting:
            self.reports.append(replace(report, waits_for=str(waiting), transitions=transitions))
            return
        except _Failed as failure:
            self.draft, claims, hypervisors = before
            del self.claims[claims:], self.hypervisors[hypervisors:]
            transitions = transitions or failure.transitions
            self.reports.append(replace(report, error=str(failure), failed=failure.part, transitions=transitions))
            return
        self.entries[name] = self._entry(profile, entry, state, following)
        self.reports.append(replace(report, next=following, transitions=transitions))

    def _entry(self, profile: Profile, entry: Entry, state: State, following: State) -> Entry:
        if following is state:
            return replace(entry, previous=state)
        entered = profile.states[following]
        # With nothing to do on entering, the first evaluation in the new state would only write this down.
        previous = state if entered.enter or entered.notify else following
        return Entry(current=following, previous=previous, transition=self.subject.now)

    # Chains

    def _run(self, chain: tuple[Member[Trigger], ...], profile: Profile, state: State, part: str) -> None:
        """Run a chain of triggers; raises `_NotYet` where it must wait."""
        for member in chain:
            try:
                for effect in member.plugin.effects(self._scene(profile, state)):
                    self._apply(effect, profile)
            except BadMark as error:
                raise _Failed(part, f"{member.name}: {error}") from None

    def _apply(self, effect: object, profile: Profile) -> None:
        owner = f"profile/{profile.name}"
        match effect:
            case Drain(policy):
                self.draft = self.draft.having(Cordon(), owner=owner)
                self._drain(profile, policy)
            case PatchHypervisor():
                self.hypervisors.append(effect)
            case _:
                self.draft = self.draft.having(effect, owner=owner)  # type: ignore[arg-type]

    def _drain(self, profile: Profile, policy: Policy) -> None:
        if not self.draft.before.spec.unschedulable:
            raise _NotYet(f"node {self.draft.node.name} is cordoned before its pods are asked to leave")
        self.drains[profile.name] = policy
        seen = self.subject.drains.get(profile.name)
        if seen is None:
            raise _NotYet("the drain begins")
        if seen.problem:
            raise _Failed("At least one trigger plugin failed", seen.problem)
        if not seen.is_done:
            raise _NotYet(seen.words)

    def _notify(self, config: StateConfig, profile: Profile, state: State, entry: Entry) -> None:
        for member in config.notify:
            last = self.notified.setdefault(member.name, None)
            due = member.schedule.due(entry=entry, last=last, now=self.subject.now)
            if due.now:
                self.notified[member.name] = self.subject.now
                self.sendings.append(Sending(member.name, profile.name, state))
            elif due.wakes_at is not None:
                self.wakes.append(due.wakes_at)

    # Transitions

    def _choose(
        self, config: StateConfig, profile: Profile, state: State, entry: Entry
    ) -> tuple[Transition | None, tuple[TransitionReport, ...]]:
        scene = self._scene(profile, state, entry)
        reports = tuple(self._look(it, scene) for it in config.transitions)
        begun = self.pending.get(profile.name)
        if begun is not None:
            going = next((it for it in config.transitions if it.next is begun), None)
            if going is not None:
                return going, reports
            del self.pending[profile.name]  # the file was edited meanwhile
        broken = [name for report in reports for name, it in report.checks.items() if it.verdict.error]
        if broken:
            why = f"checks that could not be made: {', '.join(dict.fromkeys(broken))}"
            raise _Failed("At least one check plugin failed", why, reports)
        passed = (it for it, report in zip(config.transitions, reports, strict=True) if report.passed)
        return next(passed, None), reports

    def _look(self, transition: Transition, scene: Scene) -> TransitionReport:
        verdicts: dict[str, CheckReport] = {}
        for member in transition.check.members:
            if member.name in verdicts:
                continue  # the same question has the same answer
            verdict = member.plugin.look(scene)
            verdicts[member.name] = CheckReport(member.plugin.type, verdict)
            self.topics |= set(member.plugin.topics(scene.node.name))
            if verdict.wakes_at is not None:
                self.wakes.append(verdict.wakes_at)
        errors = [f"{name}: {it.verdict.error}" for name, it in verdicts.items() if it.verdict.error]
        outcome = transition.check.evaluate({name: it.verdict.passed for name, it in verdicts.items()})
        chain_passed = outcome is True and not errors
        veto = self._veto(transition, scene.profile) if chain_passed else ""
        return TransitionReport(
            target=transition.next,
            expression=transition.check.text,
            chain_passed=chain_passed,
            passed=chain_passed and not veto,
            checks=verdicts,
            error="; ".join(errors),
            veto=veto,
        )

    def _veto(self, transition: Transition, profile: str) -> str:
        if profile in self.subject.refused:
            return self.subject.refused[profile]
        if transition.next is not State.IN_MAINTENANCE or not self.in_maintenance:
            return ""
        return f"profile {min(self.in_maintenance)} has the node in maintenance"

    def _move(self, transition: Transition, profile: Profile, state: State) -> State:
        """Go through a transition as far as that is possible now; raises `_NotYet` where it must wait."""
        scene = self._scene(profile, state)
        if profile.name not in self.pending:
            for member in transition.check.members:
                self.claims += [(profile.name, it) for it in member.plugin.claims(scene) if _is_needed(it, transition)]
        if transition.next is state:
            return state
        try:
            self._run(transition.trigger, profile, state, "At least one trigger plugin failed")
        except _NotYet:
            self.pending[profile.name] = transition.next
            self._take(transition.next, profile)
            raise
        self.pending.pop(profile.name, None)
        self._take(transition.next, profile)
        return transition.next

    def _take(self, following: State, profile: Profile) -> None:
        if following is State.IN_MAINTENANCE:
            self.in_maintenance.add(profile.name)

    # What plugins see

    def _scene(self, profile: Profile, state: State, entry: Entry | None = None) -> Scene:
        return Scene(
            now=self.subject.now,
            node=self.draft.node,
            profile=profile.name,
            state=state,
            entry=entry or self.entries[profile.name],
            is_in_maintenance=bool(self.in_maintenance),
            logs_details=self.subject.logs_details,
            sights=self.subject.sights,
            requeue=self.subject.requeue,
        )

    # All together

    def forget_detached(self, attached: tuple[str, ...]) -> None:
        """Drop the data of profiles that the node no longer has."""
        self.entries = {name: entry for name, entry in self.entries.items() if name in attached}
        self.pending = {name: it for name, it in self.pending.items() if name in self.entries}

    def result(self) -> Result:
        """Return what came of it."""
        return Result(
            draft=self.draft,
            entries=self.entries,
            notified=self.notified,
            pending=self.pending,
            reports=tuple(self.reports),
            claims=tuple(self.claims),
            hypervisors=tuple(self.hypervisors),
            drains=self.drains,
            sendings=tuple(self.sendings),
            wakes_at=min(self.wakes, default=None),
            topics=frozenset(self.topics),
        )


def _is_needed(claim: Claim, transition: Transition) -> bool:
    """Tell whether a transition takes a claim: a slot is for being in maintenance."""
    return transition.next is State.IN_MAINTENANCE or not isinstance(claim, SlotClaim)
