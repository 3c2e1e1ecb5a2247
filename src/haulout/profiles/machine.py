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

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

from haulout.drain import cordon, workloads
from haulout.drain.cordon import BadMark
from haulout.drain.policy import Policy
from haulout.errors import HauloutError
from haulout.kinds.hold import holding
from haulout.kube.objects import Node
from haulout.profiles import topics
from haulout.profiles.attaching import Attached, attached, knows_all
from haulout.profiles.begun import Begun
from haulout.profiles.draft import Draft
from haulout.profiles.instants import later
from haulout.profiles.model import Member, NotificationMember, Profile, StateConfig, Transition
from haulout.profiles.pace import is_towards_maintenance
from haulout.profiles.plugin import (
    BudgetClaim,
    Check,
    Claim,
    Cordon,
    Drain,
    Due,
    Elsewhere,
    Entry,
    PatchHypervisor,
    Plugin,
    ReplaceMachine,
    Scene,
    SlotClaim,
    State,
    Trigger,
    Uncordon,
    Verdict,
    Wait,
    Warn,
    broken,
    unknown,
)
from haulout.profiles.steps import (
    CheckReport,
    ProfileReport,
    Result,
    Sending,
    Subject,
    Trace,
    TransitionReport,
)
from haulout.profiles.writable import problem_with

T = TypeVar("T")

_PATIENCE = timedelta(seconds=1)  # with a plugin that wants to be asked again at once


def step(subject: Subject, profiles: Mapping[str, Profile]) -> Result:
    """Return what is to be done."""
    walk = _Walk(subject, profiles, attached(subject, profiles))
    walk.visit_all()
    walk.forget_detached()
    walk.record_workloads()
    return walk.result()


class _NotYet(Exception):
    """A chain has begun and must wait."""


class _Wrong(Exception):
    """A plugin cannot do its part."""


class _NotKnown(_Wrong):
    """What a plugin wants to look at is not there to be looked at."""


class _Failed(Exception):
    """Something in a profile went wrong; `part` in the words of events, `transitions` as far as they were looked at."""

    def __init__(self, part: str, why: str, transitions: tuple[TransitionReport, ...] = ()) -> None:
        super().__init__(why)
        self.part = part
        self.transitions = transitions


class _Walk:
    """One step in the making."""

    def __init__(self, subject: Subject, profiles: Mapping[str, Profile], attached: Attached) -> None:
        self.subject = subject
        self.profiles = profiles
        self.attached = attached.names
        self.draft = _draft(subject)
        self.tampering = "" if self.draft.node is subject.node else cordon.damage(subject.node)
        self.entries = dict(subject.entries)
        self.notified = dict(subject.notified)
        self.pending = {name: it for name, it in subject.pending.items() if it.is_of(subject.entries.get(name))}
        self.reports: list[ProfileReport] = []
        self.claims: list[tuple[str, Claim]] = []
        self.claiming: dict[str, int] = {}
        self.elsewhere: list[tuple[str, Elsewhere]] = []
        self.drains: dict[str, Policy] = {}
        self.sendings: list[Sending] = []
        self.passing: dict[str, bool] = {}  # by profile: whether the checks of the transition it goes pass
        self.warnings: list[Warn] = []
        self.wakes: list[datetime] = [] if attached.until is None else [attached.until]
        self.topics: set[str] = set(attached.topics)
        # As at the beginning: whoever leaves maintenance in this step still blocks the others.
        self.in_maintenance = {name for name in self.attached if name in profiles and self._has_the_node(name)}

    def visit_all(self) -> None:
        """Evaluate all profiles of the node, each once."""
        for name in dict.fromkeys(self.attached):
            self.visit(name)

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

    def _has_the_node(self, name: str) -> bool:
        """Tell whether a profile has its node in maintenance, or is on its way."""
        entry, begun = self.subject.entries.get(name), self.pending.get(name)
        is_there = entry is not None and entry.current == State.IN_MAINTENANCE
        return is_there or (begun is not None and begun.next is State.IN_MAINTENANCE)

    def _evaluate(self, profile: Profile, state: State, entry: Entry) -> None:
        report = ProfileReport(name=profile.name, state=state, next=state)
        if self._enter(profile, state, entry, report):
            # From here on the state is entered and told, whatever becomes of the transitions.
            entered = self.entries[profile.name] = replace(entry, previous=state)
            self._leave(profile, state, entered, self._notify(profile, state, entry, report))

    def _enter(self, profile: Profile, state: State, entry: Entry, report: ProfileReport) -> bool:
        """Do what is to be done on entering a state; return whether it is done."""
        if entry.previous == entry.current:
            return True
        before = self._kept()
        try:
            self._run(profile.states[state].enter, profile, state, f"Failed to enter state {state}")
        except _NotYet as waiting:
            self.reports.append(replace(report, waits_for=str(waiting)))
            return False
        except _Failed as failure:
            self._take_back(before)
            self.reports.append(replace(report, error=str(failure), failed=failure.part))
            return False
        return True

    def _leave(self, profile: Profile, state: State, entry: Entry, report: ProfileReport) -> None:
        """Look at all ways out of a state, and go one of them if possible."""
        config, before = profile.states[state], self._kept()
        transitions: tuple[TransitionReport, ...] = ()
        try:
            chosen, transitions = self._choose(config, profile, state, entry)
            if chosen is not None:
                self.passing[profile.name] = transitions[config.transitions.index(chosen)].chain_passed
            following = state if chosen is None else self._move(chosen, profile, state)
        except _NotYet as waiting:
            self.reports.append(replace(report, waits_for=str(waiting), transitions=transitions))
            return
        except _Failed as failure:
            self._take_back(before)
            seen = transitions or failure.transitions
            self.reports.append(replace(report, error=str(failure), failed=failure.part, transitions=seen))
            return
        if following is not state:
            self.entries[profile.name] = self._entry(profile, state, following)
            report = replace(report, failed="")  # whose words are that it stays
        self.reports.append(replace(report, next=following, transitions=transitions))

    def _kept(self) -> tuple[Draft, int, int]:
        return self.draft, len(self.claims), len(self.elsewhere)

    def _take_back(self, before: tuple[Draft, int, int]) -> None:
        """Undo what a profile did in which something went wrong."""
        self.draft, claims, elsewhere = before
        for profile, _ in self.claims[claims:]:
            self.claiming.pop(profile, None)
        del self.claims[claims:], self.elsewhere[elsewhere:]

    def _entry(self, profile: Profile, state: State, following: State) -> Entry:
        entered = profile.states[following]
        # With nothing to do on entering, the first evaluation in the new state would only write this down.
        previous = state if entered.enter or entered.notify else following
        return Entry(current=following, previous=previous, transition=self.subject.now)

    # Chains

    def _run(self, chain: tuple[Member[Trigger], ...], profile: Profile, state: State, part: str) -> None:
        """Run a chain of triggers; raises `_NotYet` where it must wait."""
        for member in chain:
            try:
                for effect in self._effects(member, profile, state):
                    self._apply(effect, profile)
            except (BadMark, _Wrong) as error:
                raise _Failed(part, f"{member.name}: {error}") from None

    def _effects(self, member: Member[Trigger], profile: Profile, state: State) -> Iterable[object]:
        scene = self._scene(profile, state)
        return self._ask(member.plugin, lambda: member.plugin.effects(scene))

    def _apply(self, effect: object, profile: Profile) -> None:
        owner = f"profile/{profile.name}"
        match effect:
            case Cordon():
                self._cordon(profile)
            case Drain(policy):
                self._cordon(profile)
                self._drain(profile, policy)
            case Uncordon() if profile.on_notice and cordon.cordon_of(self.draft.node) is None:
                pass  # it comes and goes by itself, so a cordon without a mark is somebody else's
            case Wait(reason=reason, until=until, topics=woken_by):
                self.topics |= set(woken_by)
                self.wakes.append(until)
                raise _NotYet(reason)
            case Warn():
                self.warnings.append(effect)
            case PatchHypervisor() | ReplaceMachine():
                if why := self.subject.failed.get(profile.name):
                    self._ask_again()
                    raise _Wrong(why)
                if isinstance(effect, ReplaceMachine):
                    self._stand_by(profile)
                self.elsewhere.append((profile.name, effect))
            case _:
                if why := problem_with(effect):
                    raise _Wrong(why)
                self.draft = self.draft.having(effect, owner=owner)  # type: ignore[arg-type]

    def _stand_by(self, profile: Profile) -> None:
        """Wait until the node says that the profile goes this way: what cannot be undone never rests on an old copy."""
        entry = self.entries[profile.name]
        is_entered = entry.current != entry.previous
        if not is_entered and profile.name not in self.pending:
            raise _NotYet(f"it is noted on node {self.draft.node.name} before its Machine is told to go")

    def _cordon(self, profile: Profile) -> None:
        """Cordon the node; what the SAP maintenance-controller has cordoned for the profile is taken over from it.

        It leaves no mark. Taken for a person's, its cordon would outlast a maintenance that we bring to its end.
        """
        entry = self.entries[profile.name]
        adopting = entry.is_foreign and entry.current != State.OPERATIONAL
        self.draft = self.draft.having(Cordon(), owner=f"profile/{profile.name}", adopting=adopting)

    def _drain(self, profile: Profile, policy: Policy) -> None:
        if not self.draft.before.spec.unschedulable:
            raise _NotYet(f"node {self.draft.node.name} is cordoned before its pods are asked to leave")
        seen = self.subject.drains.get(profile.name)
        if seen is not None and seen.problem:
            self._ask_again()  # it has ended, and so is forgotten: then another one begins
            raise _Wrong(seen.problem)
        self.drains[profile.name] = policy
        if seen is None:
            raise _NotYet("the drain begins")
        if not seen.is_done:
            raise _NotYet(seen.words)

    def _ask_again(self, at: datetime | None = None) -> None:
        """Look again some time, as nobody will tell when that is worth it."""
        some_time = later(self.subject.now, self.subject.requeue)
        self.wakes.append(some_time if at is None else min(at, some_time))

    def _notify(self, profile: Profile, state: State, entry: Entry, report: ProfileReport) -> ProfileReport:
        """Have people told what is due; what goes wrong is told itself, and holds up nothing else."""
        problems = []
        for member in profile.states[state].notify:
            last = self.notified.setdefault(member.name, None)
            try:
                due = self._due(member, entry, last)
            except _Wrong as error:
                problems.append(f"{member.name}: {error}")
                continue
            if due.now:
                self.notified[member.name] = self.subject.now
                self.sendings.append(Sending(member.name, profile.name, state))
            elif due.wakes_at is not None:
                self.wakes.append(due.wakes_at)
        failed = "At least one notification plugin failed" if problems else ""
        return replace(report, error="; ".join(problems), failed=failed)

    def _due(self, member: NotificationMember, entry: Entry, last: datetime | None) -> Due:
        return self._ask(member.schedule, lambda: member.schedule.due(entry=entry, last=last, now=self.subject.now))

    # Transitions

    def _choose(
        self, config: StateConfig, profile: Profile, state: State, entry: Entry
    ) -> tuple[Transition | None, tuple[TransitionReport, ...]]:
        scene = self._scene(profile, state, entry)
        reports = tuple(self._look(number, it, scene) for number, it in enumerate(config.transitions))
        begun = self.pending.get(profile.name)
        if begun is not None:
            if going := _continued(begun, config.transitions):
                return self._called_off(going, profile, state, reports) or going, reports
            self._give_up(profile, state)  # the file was edited meanwhile
        wrong = [name for report in reports for name, it in report.checks.items() if it.verdict.error]
        if wrong:
            why = f"checks that could not be made: {', '.join(dict.fromkeys(wrong))}"
            raise _Failed("At least one check plugin failed", why, reports)
        passed = (it for it, report in zip(config.transitions, reports, strict=True) if report.passed)
        return next(passed, None), reports

    def _called_off(
        self, going: Transition, profile: Profile, state: State, reports: tuple[TransitionReport, ...]
    ) -> Transition | None:
        """Return what goes before a transition that has begun: one that stands before it, and passes; None if none.

        That is so only with notices, which may be taken back. A node whose maintenance is cancelled need not be emptied
        first; and if a pod cannot leave, that would never be.
        """
        ways = zip(profile.states[state].transitions, reports, strict=True)
        first = next(it for it, report in ways if it is going or report.passed)
        if first is going or not profile.on_notice:
            return None
        self._give_up(profile, state)
        return first

    def _give_up(self, profile: Profile, state: State) -> None:
        """Forget a transition that has begun. If it led into maintenance, other profiles may enter it now."""
        del self.pending[profile.name]
        if state is not State.IN_MAINTENANCE:
            self.in_maintenance.discard(profile.name)

    def _look(self, number: int, transition: Transition, scene: Scene) -> TransitionReport:
        verdicts: dict[str, CheckReport] = {}
        for member in transition.check.members:
            if member.name in verdicts:
                continue  # the same question has the same answer
            verdict = self._verdict(member, scene)
            verdicts[member.name] = CheckReport(member.plugin.type, verdict)
            if verdict.wakes_at is not None:
                self.wakes.append(verdict.wakes_at)
        errors = [f"{name}: {it.verdict.error}" for name, it in verdicts.items() if it.verdict.error]
        outcome = transition.check.evaluate({name: it.verdict.passed for name, it in verdicts.items()})
        chain_passed = outcome is True and not errors
        slowed = self._slowed(transition, scene) if chain_passed else ""
        veto = slowed or (self._veto(number, transition, scene) if chain_passed else "")
        return TransitionReport(
            target=transition.next,
            expression=transition.check.text,
            chain_passed=chain_passed,
            passed=chain_passed and not veto,
            checks=verdicts,
            error="; ".join(errors),
            veto=veto,
            is_slowed=bool(slowed),
        )

    def _verdict(self, member: Member[Check], scene: Scene) -> Verdict:
        try:
            self.topics |= set(self._ask(member.plugin, lambda: member.plugin.topics(scene.node.name)))
            return self._ask(member.plugin, lambda: member.plugin.look(scene))
        except _NotKnown as error:
            return unknown(str(error))
        except _Wrong as error:
            return broken(str(error))

    def _veto(self, number: int, transition: Transition, scene: Scene) -> str:
        if refusal := self.subject.refused.get((scene.profile, number)):
            self._ask_again(refusal.again_at)
            return refusal.why
        # Whoever is on its way is not in its own way; who is there is, as ever.
        others = self.in_maintenance - ({scene.profile} if scene.state is not State.IN_MAINTENANCE else set())
        if transition.next is not State.IN_MAINTENANCE:
            return ""
        if others:
            return f"profile {min(others)} has the node in maintenance"
        return self._held(scene.profile) or self._used_up()

    def _held(self, profile: str) -> str:
        """Return why a person keeps maintenance off the node; what has begun goes on."""
        hold = None if profile in self.pending else holding(self.subject.node, now=self.subject.now)
        if hold is not None and hold.until is not None:
            self.wakes.append(hold.until)
        return "" if hold is None else str(hold)

    def _slowed(self, transition: Transition, scene: Scene) -> str:
        """Return why a profile has to wait that goes in circles; never in the middle of a transition."""
        found = self.subject.slowed.get((scene.profile, scene.state))
        if found is None or scene.profile in self.pending or not is_towards_maintenance(scene.state, transition.next):
            return ""
        if found.again_at is not None:
            self.wakes.append(found.again_at)
        return found.why

    def _used_up(self) -> str:
        """Return why the budget has no room for the node; it is looked at again when there may be."""
        view = self.subject.budget
        crowded = None if view is None else view.crowded(self.subject.node)
        if view is None or crowded is None:
            return ""
        sizes = (topics.NODE_COUNT,) if any(it.is_share for it in view.budget.limits) else ()
        self.topics |= {topics.SERVICE, *sizes, *map(topics.label, view.budget.label_keys())}
        if crowded.again_at is not None:
            self.wakes.append(crowded.again_at)
        return str(crowded)

    def _move(self, transition: Transition, profile: Profile, state: State) -> State:
        """Go through a transition as far as that is possible now; raises `_NotYet` where it must wait."""
        if profile.name not in self.pending:
            self._claim(transition, profile, state)
        if transition.next is state:
            return state
        try:
            self._run(transition.trigger, profile, state, "At least one trigger plugin failed")
        except _NotYet:
            since, known = self.entries[profile.name].transition, self.pending.get(profile.name)
            at = self.subject.now if known is None or known.at is None else known.at
            self.pending[profile.name] = Begun(next=transition.next, check=transition.check.text, since=since, at=at)
            self._take(transition.next, profile)
            raise
        self.pending.pop(profile.name, None)
        self._take(transition.next, profile)
        return transition.next

    def _claim(self, transition: Transition, profile: Profile, state: State) -> None:
        scene = self._scene(profile, state)
        claims: list[Claim] = []
        for member in transition.check.members:
            try:
                claims += self._ask(member.plugin, partial(member.plugin.claims, scene))
            except _Wrong as error:
                raise _Failed("At least one check plugin failed", f"{member.name}: {error}") from None
        needed = [it for it in claims if _is_needed(it, transition)]
        if self.subject.budget is not None and transition.next is State.IN_MAINTENANCE:
            needed.append(BudgetClaim(self.subject.budget.budget))
        if needed:
            self.claims += [(profile.name, it) for it in needed]
            self.claiming[profile.name] = profile.states[state].transitions.index(transition)

    def _take(self, following: State, profile: Profile) -> None:
        if following is State.IN_MAINTENANCE:
            self.in_maintenance.add(profile.name)

    # Plugins

    def _ask(self, plugin: Plugin, question: Callable[[], T]) -> T:
        """Return what a plugin says; it may be anybody's, and must not stop other profiles."""
        try:
            return question()
        except HauloutError as error:
            self._ask_again()
            raise _NotKnown(str(error)) from None
        except Exception as error:  # noqa: BLE001 - as said
            self._ask_again()
            raise _Wrong(f"the plugin {plugin.type} failed: {error!r}") from None

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
            in_hand=self.subject.in_hand,
            began=self._began(profile),
            passes=self.passing.get(profile.name, True),
            leads_here=partial(profile.leads_to, state),
        )

    def _began(self, profile: Profile) -> datetime | None:
        """Return when the chain of triggers of a profile began: on its way, or on entering a state."""
        begun, entry = self.pending.get(profile.name), self.entries[profile.name]
        if begun is not None:
            return begun.at
        return None if entry.current == entry.previous else entry.transition

    # All together

    def forget_detached(self) -> None:
        """Drop the data of profiles that the node no longer has, unless somebody else may see to them."""
        self.entries = {
            name: entry for name, entry in self.entries.items() if name in self.attached or self._is_of_others(name)
        }
        self.pending = {name: it for name, it in self.pending.items() if name in self.entries}

    def record_workloads(self) -> None:
        """Keep on the node which workloads it had before anything was evicted, where a plugin compares them.

        It is written with the cordon, so before the first eviction, and removed when the node is operational again.
        """
        own = {name: it for name, it in self.entries.items() if name in self.profiles}
        if not self.pending and all(it.current == State.OPERATIONAL for it in own.values()):
            self.draft = self.draft.annotated({workloads.ANNOTATION: None})
            return
        is_recorded = workloads.ANNOTATION in self.draft.before.metadata.annotations
        is_cordoned_now = _is_held_by(self.draft.node, own) and not _is_held_by(self.draft.before, own)
        if is_recorded and not is_cordoned_now:
            return
        if not any(plugin.compares_workloads for name in own for _, plugin in self.profiles[name].members()):
            return
        try:
            record = self.subject.sights.workloads_on(self.draft.node.name)
        except HauloutError:
            return  # it is not known yet, and the node is looked at again when it is
        self.draft = self.draft.annotated({workloads.ANNOTATION: workloads.write(record)})

    def result(self) -> Result:
        """Return what came of it."""
        return Result(
            draft=self.draft,
            entries=self.entries,
            notified=self.notified,
            pending=self.pending,
            reports=tuple(self.reports),
            claims=tuple(self.claims),
            claiming=self.claiming,
            elsewhere=tuple(self.elsewhere),
            drains=self.drains,
            sendings=tuple(self.sendings),
            wakes_at=self._wakes_at(),
            topics=frozenset(self.topics),
            attached=self.attached,
            trace=self._trace(),
            tampering=self.tampering,
            warnings=tuple(self.warnings),
            beside=tuple(it.current for name, it in self.entries.items() if self._is_of_others(name)),
        )

    def _is_of_others(self, name: str) -> bool:
        """Tell whether a profile is none of ours: all are, unless those there are come and go with notices."""
        return name not in self.profiles and not knows_all(self.profiles)

    def _trace(self) -> Trace:
        if all(map(self._is_of_others, (*self.attached, *self.subject.entries))):
            return Trace.UNTOUCHED
        return Trace.KEPT if self.entries or knows_all(self.profiles) else Trace.ERASED

    def _wakes_at(self) -> datetime | None:
        first, now = min(self.wakes, default=None), self.subject.now
        return first if first is None or first > now else later(now, _PATIENCE)


def _draft(subject: Subject) -> Draft:
    """Return the node, with its cordon's mark repaired."""
    return Draft.of(subject.node, now=subject.now).repaired(_cordoning(subject), copy=subject.cordon_copy)


def _cordoning(subject: Subject) -> frozenset[str]:
    """Return as owners of a cordon the profiles that may hold one: those on their way to maintenance, or in it."""
    begun = {name for name, it in subject.entries.items() if it.current != State.OPERATIONAL} | subject.pending.keys()
    return frozenset(f"profile/{name}" for name in begun)


def _is_held_by(node: Node, profiles: Iterable[str]) -> bool:
    """Tell whether one of these profiles keeps a node cordoned, as far as that can be read."""
    try:
        mark = cordon.cordon_of(node)
    except BadMark:
        return True
    return mark is not None and any(f"profile/{name}" in mark.owners for name in profiles)


def _continued(begun: Begun, transitions: tuple[Transition, ...]) -> Transition | None:
    """Return the transition that has begun; if its checks were edited meanwhile, the first that leads to the same."""
    there = [it for it in transitions if it.next is begun.next]
    return next((it for it in there if it.check.text == begun.check), there[0] if there else None)


def _is_needed(claim: Claim, transition: Transition) -> bool:
    """Tell whether a transition takes a claim: a slot is for being in maintenance."""
    return transition.next is State.IN_MAINTENANCE or not isinstance(claim, SlotClaim)
