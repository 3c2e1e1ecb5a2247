"""Decides one reconcile of a node: the state of each profile, the transition that passes, and the resulting actions.

    decision = decide(observation, profiles)

`decide` is a pure function. `haulout.controllers.profiles.reconciler` executes the decision in this order: first the
claims (slots and leases, by compare-and-swap), then changes to other objects, then the node in a single write, and last
events and notifications. After a crash in between, only idempotent operations run again.

Profiles are evaluated in the order of the node's label. For each profile: run the enter chain of the state that it has
just entered; evaluate the notifications of the state; evaluate the checks of all transitions out of it; run the trigger
chain of the first transition that passes. Profiles are isolated: a failure in one is reported and does not affect the
others. Only one profile of a node is in maintenance at a time.

A transition that has started (its slot is taken, its drain runs) is completed whatever its checks return meanwhile.
`pending` records it in an annotation of Haulout.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

from haulout.api import workloads
from haulout.api.objects import Node
from haulout.controllers.profiles.config.model import Member, NotificationMember, Profile, StateConfig, StateTransition
from haulout.controllers.profiles.machine.attachment import AttachedProfiles, attached_profiles, covers_all_nodes
from haulout.controllers.profiles.machine.loop_backoff import is_towards_maintenance
from haulout.controllers.profiles.machine.node_draft import NodeDraft, problem_with_action
from haulout.controllers.profiles.machine.transitions import PendingTransition
from haulout.controllers.profiles.observation import (
    CheckReport,
    DataUpdate,
    Decision,
    NotificationRequest,
    Observation,
    ProfileReport,
    TransitionReport,
)
from haulout.controllers.profiles.plugin import (
    DATA_ANNOTATION,
    BudgetClaim,
    Check,
    CheckResult,
    Claim,
    Cordon,
    Drain,
    ExternalAction,
    PatchHypervisor,
    Plugin,
    PluginContext,
    ProfileStatus,
    ReplaceMachine,
    SendDecision,
    SlotClaim,
    State,
    Trigger,
    Uncordon,
    Wait,
    Warn,
    check_error,
    unknown,
)
from haulout.controllers.profiles.plugins.checks.notice import NoticeCheck, When
from haulout.controllers.profiles.view import topics
from haulout.core.timestamps import add_saturating
from haulout.drain import cordon
from haulout.drain.cordon import InvalidCordonAnnotation
from haulout.drain.policy import DrainPolicy
from haulout.errors import HauloutError

T = TypeVar("T")

_MIN_REQUEUE_DELAY = timedelta(seconds=1)  # for a plugin that asks to be evaluated again at once


def decide(observation: Observation, profiles: Mapping[str, Profile]) -> Decision:
    """Return the decision for one node. It reads no clock, sends no request, and keeps no state."""
    evaluation = _Evaluation(observation, profiles, attached_profiles(observation, profiles))
    evaluation.evaluate_all()
    evaluation.drop_detached()
    evaluation.record_workloads()
    return evaluation.decision()


class _MustWait(Exception):
    """Raised if a chain has started and must wait; the text says for what. It is no failure."""


class _PluginError(Exception):
    """Raised if a plugin fails. The error belongs to one profile, and never stops the evaluation of the others."""


class _DataUnavailable(_PluginError):
    """Raised if the data that a plugin needs is not available."""


class _ProfileFailed(Exception):
    """Raised if a profile fails.

    `part` names the failed part as event messages do. `transitions` holds the transitions evaluated so far.
    """

    def __init__(self, part: str, reason: str, transitions: tuple[TransitionReport, ...] = ()) -> None:
        super().__init__(reason)
        self.part = part
        self.transitions = transitions


class _Evaluation:
    """Mutable state of one call of `decide`. It collects the decision, profile by profile."""

    def __init__(self, observation: Observation, profiles: Mapping[str, Profile], attached: AttachedProfiles) -> None:
        self.observation = observation
        self.profiles = profiles
        self.attached = attached.names
        # First, so that plugins see the node with its cordon annotation intact.
        self.draft = _draft(observation)
        self.tampering = (
            "" if self.draft.node is observation.node else cordon.describe_annotation_damage(observation.node)
        )
        self.statuses = dict(observation.statuses)
        self.last_sent = dict(observation.last_sent)
        self.pending = {
            name: transition
            for name, transition in observation.pending.items()
            if transition.belongs_to(observation.statuses.get(name))
        }
        self.reports: list[ProfileReport] = []
        self.claims: list[tuple[str, Claim]] = []
        self.claimed_transitions: dict[str, int] = {}
        self.external_actions: list[tuple[str, ExternalAction]] = []
        self.drains: dict[str, DrainPolicy] = {}
        self.notifications: list[NotificationRequest] = []
        self.checks_pass: dict[str, bool] = {}  # by profile: whether the checks of the chosen transition pass
        self.warnings: list[Warn] = []
        self.requeue_times: list[datetime] = [] if attached.recheck_at is None else [attached.recheck_at]
        self.topics: set[str] = set(attached.topics)
        # As of the start of this reconcile: a profile that leaves maintenance in it still blocks the others.
        self.in_maintenance = {
            name for name in self.attached if name in profiles and self._has_node_in_maintenance(name)
        }

    def evaluate_all(self) -> None:
        """Evaluate all profiles of the node, each once."""
        for name in dict.fromkeys(self.attached):
            self.evaluate_profile(name)

    # One profile

    def evaluate_profile(self, name: str) -> None:
        """Evaluate a profile if it is configured. A profile that is new to the node starts as operational."""
        profile = self.profiles.get(name)
        if profile is None:
            return
        now = self.observation.now
        new = ProfileStatus(current=State.OPERATIONAL, previous=State.OPERATIONAL, transition=now)
        status = self.statuses.setdefault(name, new)
        try:
            state = State(status.current)
        except ValueError:
            error = (
                f"annotation {DATA_ANNOTATION} says that it is in the unknown state {status.current!r}, "
                f"expected one of {', '.join(State)}"
            )
            self.reports.append(ProfileReport(name=name, state=status.current, next=status.current, error=error))
            return
        self._evaluate_state(profile, state, status)

    def _has_node_in_maintenance(self, name: str) -> bool:
        """Return whether a profile has the node in maintenance, or has started a transition into it."""
        status, pending = self.observation.statuses.get(name), self.pending.get(name)
        is_in_maintenance = status is not None and status.current == State.IN_MAINTENANCE
        return is_in_maintenance or (pending is not None and pending.next is State.IN_MAINTENANCE)

    def _evaluate_state(self, profile: Profile, state: State, status: ProfileStatus) -> None:
        report = ProfileReport(name=profile.name, state=state, next=state)
        if self._enter(profile, state, status, report):
            # From here on the state counts as entered and its notifications as sent, whatever the transitions do.
            entered = self.statuses[profile.name] = replace(status, previous=state)
            self._leave(profile, state, entered, self._notify(profile, state, status, report))

    def _enter(self, profile: Profile, state: State, status: ProfileStatus, report: ProfileReport) -> bool:
        """Run the enter chain of a state; return whether it is complete."""
        if status.previous == status.current:
            return True
        checkpoint = self._checkpoint()
        try:
            self._run(profile.states[state].enter, profile, state, f"Failed to enter state {state}")
        except _MustWait as waiting:
            self.reports.append(replace(report, waits_for=str(waiting)))
            return False
        except _ProfileFailed as failure:
            self._roll_back(checkpoint)
            self.reports.append(replace(report, error=str(failure), failed_part=failure.part))
            return False
        return True

    def _leave(self, profile: Profile, state: State, status: ProfileStatus, report: ProfileReport) -> None:
        """Evaluate all transitions out of a state, and run the first that passes."""
        config, checkpoint = profile.states[state], self._checkpoint()
        transitions: tuple[TransitionReport, ...] = ()
        try:
            chosen, transitions = self._choose_transition(config, profile, state, status)
            if chosen is not None:
                self.checks_pass[profile.name] = transitions[config.transitions.index(chosen)].chain_passed
            next_state = state if chosen is None else self._run_transition(chosen, profile, state)
        except _MustWait as waiting:
            self.reports.append(replace(report, waits_for=str(waiting), transitions=transitions))
            return
        except _ProfileFailed as failure:
            self._roll_back(checkpoint)
            evaluated = transitions or failure.transitions
            self.reports.append(replace(report, error=str(failure), failed_part=failure.part, transitions=evaluated))
            return
        if next_state is not state:
            self.statuses[profile.name] = self._next_status(profile, state, next_state)
            report = replace(report, failed_part="")  # this error applies only while the profile stays in its state
        self.reports.append(replace(report, next=next_state, transitions=transitions))

    def _checkpoint(self) -> tuple[NodeDraft, int, int]:
        return self.draft, len(self.claims), len(self.external_actions)

    def _roll_back(self, checkpoint: tuple[NodeDraft, int, int]) -> None:
        """Undo the changes of a profile that failed."""
        self.draft, claims, external_actions = checkpoint
        for profile, _ in self.claims[claims:]:
            self.claimed_transitions.pop(profile, None)
        del self.claims[claims:], self.external_actions[external_actions:]

    def _next_status(self, profile: Profile, state: State, next_state: State) -> ProfileStatus:
        next_config = profile.states[next_state]
        # Without enter chain and notifications, the first evaluation of the new state would only record that it was
        # entered.
        previous = state if next_config.enter or next_config.notify else next_state
        return ProfileStatus(current=next_state, previous=previous, transition=self.observation.now)

    # Chains

    def _run(self, chain: tuple[Member[Trigger], ...], profile: Profile, state: State, part: str) -> None:
        """Run a chain of triggers. Raise `_MustWait` if it must wait, `_ProfileFailed` if a trigger fails."""
        for member in chain:
            try:
                for effect in self._actions_of(member, profile, state):
                    self._apply(effect, profile)
            # An invalid annotation must not be overwritten: whoever owns the cordon could no longer undo it.
            except (InvalidCordonAnnotation, _PluginError) as error:
                raise _ProfileFailed(part, f"{member.name}: {error}") from None

    def _actions_of(self, member: Member[Trigger], profile: Profile, state: State) -> Iterable[object]:
        context = self._context(profile, state)
        return self._call_plugin(member.plugin, lambda: member.plugin.actions(context))

    def _apply(self, action: object, profile: Profile) -> None:
        owner = f"profile/{profile.name}"
        match action:
            case Cordon():
                self._cordon(profile)
            case Drain(policy):
                self._cordon(profile)
                self._drain(profile, policy)
            case Uncordon() if profile.on_notice and cordon.cordon_of(self.draft.node) is None:
                pass  # a notice profile never takes over a cordon without our annotation: it belongs to another owner
            case Wait(reason=reason, until=until, topics=wait_topics):
                self.topics |= set(wait_topics)
                self.requeue_times.append(until)
                raise _MustWait(reason)
            case Warn():
                # Emitted after the write, so that a reconcile that conflicts does not warn twice.
                self.warnings.append(action)
            case PatchHypervisor() | ReplaceMachine():
                if problem := self.observation.failed_actions.get(profile.name):
                    self._requeue_later()
                    raise _PluginError(problem)
                if isinstance(action, ReplaceMachine):
                    self._wait_until_recorded(profile)
                self.external_actions.append((profile.name, action))
            case _:
                if problem := problem_with_action(action):
                    raise _PluginError(problem)
                self.draft = self.draft.with_action(action, owner=owner)  # type: ignore[arg-type]

    def _wait_until_recorded(self, profile: Profile) -> None:
        """Wait until the node records the transition: an irreversible action must not depend on a stale copy."""
        status = self.statuses[profile.name]
        is_entered = status.current != status.previous
        if not is_entered and profile.name not in self.pending:
            node = self.draft.node.name
            raise _MustWait(f"waiting until node {node} records the transition, before its Machine is replaced")

    def _cordon(self, profile: Profile) -> None:
        """Cordon the node. Adopt a cordon that the SAP maintenance-controller has set for the profile.

        That controller leaves no annotation. If its cordon counted as a person's, it would outlast the maintenance that
        Haulout completes.
        """
        status = self.statuses[profile.name]
        is_adopting = status.is_from_smc and status.current != State.OPERATIONAL
        self.draft = self.draft.with_action(Cordon(), owner=f"profile/{profile.name}", is_adopting=is_adopting)

    def _drain(self, profile: Profile, policy: DrainPolicy) -> None:
        # The node must be cordoned in the API server, not only in the draft. Otherwise the scheduler could replace
        # evicted pods on the same node.
        if not self.draft.before.spec.unschedulable:
            raise _MustWait(f"cordoning node {self.draft.node.name} before its pods are evicted")
        drain = self.observation.drains.get(profile.name)
        if drain is not None and drain.problem:
            self._requeue_later()  # an ended drain is forgotten, so that the next reconcile can start another one
            raise _PluginError(drain.problem)
        self.drains[profile.name] = policy
        if drain is None:
            raise _MustWait("starting the drain")
        if not drain.is_done:
            raise _MustWait(drain.message)

    def _requeue_later(self, at: datetime | None = None) -> None:
        """Requeue after the configured interval, or at `at` if that is earlier, since no event will trigger it."""
        latest = add_saturating(self.observation.now, self.observation.requeue)
        self.requeue_times.append(latest if at is None else min(at, latest))

    def _notify(self, profile: Profile, state: State, status: ProfileStatus, report: ProfileReport) -> ProfileReport:
        """Request the notifications that are due. A failure is reported and blocks nothing else."""
        problems = []
        for member in profile.states[state].notify:
            last = self.last_sent.setdefault(member.name, None)
            try:
                decision = self._due(member, status, last)
            except _PluginError as error:
                problems.append(f"{member.name}: {error}")
                continue
            if decision.is_due:
                # Recorded in the write of this decision, and sent after it. So a crash loses a message rather than
                # sending it twice.
                self.last_sent[member.name] = self.observation.now
                self.notifications.append(NotificationRequest(member.name, profile.name, state))
            elif decision.requeue_at is not None:
                self.requeue_times.append(decision.requeue_at)
        failed = "At least one notification plugin failed" if problems else ""
        return replace(report, error="; ".join(problems), failed_part=failed)

    def _due(self, member: NotificationMember, status: ProfileStatus, last: datetime | None) -> SendDecision:
        return self._call_plugin(
            member.schedule, lambda: member.schedule.due(status=status, last_sent=last, now=self.observation.now)
        )

    # Transitions

    def _choose_transition(
        self, config: StateConfig, profile: Profile, state: State, status: ProfileStatus
    ) -> tuple[StateTransition | None, tuple[TransitionReport, ...]]:
        context = self._context(profile, state, status)
        reports = tuple(
            self._evaluate_transition(number, transition, context)
            for number, transition in enumerate(config.transitions)
        )
        pending = self.pending.get(profile.name)
        if pending is not None:
            if ongoing := _ongoing_transition(pending, config.transitions):
                return self._superseding_transition(ongoing, profile, state, reports) or ongoing, reports
            self._abandon_pending(profile, state)  # the configuration was edited meanwhile
        # An error in any chain blocks all transitions of the state, as in the SAP maintenance-controller. Otherwise the
        # order of transitions, by which the first one wins, would depend on a failure.
        errored = [name for report in reports for name, transition in report.checks.items() if transition.result.error]
        if errored:
            message = f"checks that failed with an error: {', '.join(dict.fromkeys(errored))}"
            raise _ProfileFailed("At least one check plugin failed", message, reports)
        passed = (transition for transition, report in zip(config.transitions, reports, strict=True) if report.passed)
        return next(passed, None), reports

    def _superseding_transition(
        self, ongoing: StateTransition, profile: Profile, state: State, reports: tuple[TransitionReport, ...]
    ) -> StateTransition | None:
        """Return a transition that takes precedence over the ongoing one: listed before it, and passing. None if none.

        This applies only to notice profiles, since notices can be withdrawn. A node whose maintenance is cancelled need
        not be drained first; if one of its pods can never be evicted, the cancellation would never take effect.
        """
        candidates = zip(profile.states[state].transitions, reports, strict=True)
        first = next(transition for transition, report in candidates if transition is ongoing or report.passed)
        if first is ongoing or not profile.on_notice:
            return None
        self._abandon_pending(profile, state)
        return first

    def _abandon_pending(self, profile: Profile, state: State) -> None:
        """Forget a pending transition. If it led into maintenance, other profiles may enter maintenance now."""
        del self.pending[profile.name]
        if state is not State.IN_MAINTENANCE:
            self.in_maintenance.discard(profile.name)

    def _evaluate_transition(
        self, number: int, transition: StateTransition, context: PluginContext
    ) -> TransitionReport:
        check_reports: dict[str, CheckReport] = {}
        for member in transition.check.members:
            if member.name in check_reports:
                continue  # listed twice in the expression: same result
            result = self._evaluate_check(member, context)
            check_reports[member.name] = CheckReport(member.plugin.type, result)
            if result.requeue_at is not None:
                self.requeue_times.append(result.requeue_at)
        errors = [f"{name}: {check.result.error}" for name, check in check_reports.items() if check.result.error]
        outcome = transition.check.evaluate({name: check.result.passed for name, check in check_reports.items()})
        chain_passed = outcome is True and not errors
        throttle_reason = self._throttle_reason(transition, context) if chain_passed else ""
        veto, is_budget_exhausted = throttle_reason, False
        if chain_passed and not veto:
            veto, is_budget_exhausted = self._veto(number, transition, context)
        return TransitionReport(
            target=transition.next,
            expression=transition.check.text,
            chain_passed=chain_passed,
            passed=chain_passed and not veto,
            checks=check_reports,
            error="; ".join(errors),
            veto=veto,
            is_budget_exhausted=is_budget_exhausted,
            is_throttled=bool(throttle_reason),
        )

    def _evaluate_check(self, member: Member[Check], context: PluginContext) -> CheckResult:
        try:
            self.topics |= set(self._call_plugin(member.plugin, lambda: member.plugin.topics(context.node.name)))
            return self._call_plugin(member.plugin, lambda: member.plugin.evaluate(context))
        except _DataUnavailable as error:
            return unknown(str(error))
        except _PluginError as error:
            return check_error(str(error))

    def _veto(self, number: int, transition: StateTransition, context: PluginContext) -> tuple[str, bool]:
        """Return why a transition is blocked although its checks pass, and whether the budget blocks it."""
        if deferral := self.observation.deferred.get((context.profile, number)):
            self._requeue_later(deferral.retry_at)
            return deferral.reason, deferral.is_budget_exhausted
        # A profile on its way into maintenance does not block itself; the others that are in maintenance block it.
        others = self.in_maintenance - ({context.profile} if context.state is not State.IN_MAINTENANCE else set())
        if transition.next is not State.IN_MAINTENANCE:
            return "", False
        if others:
            return f"profile {min(others)} has the node in maintenance", False
        if hold_reason := self._hold_reason(self.profiles[context.profile]):
            return hold_reason, False
        budget_reason = self._budget_reason()
        return budget_reason, bool(budget_reason)

    def _hold_reason(self, profile: Profile) -> str:
        """Return why a hold or a freeze keeps the node out of maintenance; empty if none does.

        A pending transition continues.
        """
        if profile.name in self.pending:
            return ""
        node, now, freezes = self.observation.node, self.observation.now, self.observation.freezes
        hold = freezes.hold_on(node, now=now)
        if hold is not None and hold.freeze and self._is_announced(profile):
            hold = freezes.hold_on(node, now=now, is_announced=True)
        if hold is not None and hold.until is not None:
            self.requeue_times.append(hold.until)
        return "" if hold is None else str(hold)

    def _is_announced(self, profile: Profile) -> bool:
        """Return whether a profile maintains the node for a notice."""
        if profile.on_notice:
            return True
        transitions = (transition for state in profile.states.values() for transition in state.transitions)
        checks = [
            member.plugin
            for transition in transitions
            for member in transition.check.members
            if isinstance(member.plugin, NoticeCheck) and member.plugin.when is not When.OVER
        ]
        if not checks:
            return False
        node = self.observation.node
        self.topics.add(topics.notices(node.name))
        try:
            notices = [notice for notice in self.observation.cluster.notices(node.name) if notice.matches_node(node)]
        except HauloutError:  # the node is requeued when the notice informer has synced
            return False
        return any(check.matches(notice, now=self.observation.now) for check in checks for notice in notices)

    def _throttle_reason(self, transition: StateTransition, context: PluginContext) -> str:
        """Return why a profile that loops must wait; empty if it need not. Never throttle a pending transition."""
        deferral = self.observation.throttled.get((context.profile, context.state))
        if (
            deferral is None
            or context.profile in self.pending
            or not is_towards_maintenance(context.state, transition.next)
        ):
            return ""
        if deferral.retry_at is not None:
            self.requeue_times.append(deferral.retry_at)
        return deferral.reason

    def _budget_reason(self) -> str:
        """Return why the budget has no slot for the node; empty if it has. Subscribe to what may free a slot."""
        view = self.observation.budget
        exhausted = None if view is None else view.exhausted(self.observation.node)
        if view is None or exhausted is None:
            return ""
        size_topics = (topics.NODE_COUNT,) if any(limit.is_percentage for limit in view.budget.limits) else ()
        self.topics |= {topics.AVAILABILITY, *size_topics, *map(topics.label, view.budget.label_keys())}
        if exhausted.requeue_at is not None:
            self.requeue_times.append(exhausted.requeue_at)
        return str(exhausted)

    def _run_transition(self, transition: StateTransition, profile: Profile, state: State) -> State:
        """Run the trigger chain of a transition as far as possible. Raise `_MustWait` if it must wait."""
        if profile.name not in self.pending:
            self._collect_claims(transition, profile, state)
        if transition.next is state:
            return state
        try:
            self._run(transition.trigger, profile, state, "At least one trigger plugin failed")
        except _MustWait:
            since, pending = self.statuses[profile.name].transition, self.pending.get(profile.name)
            at = self.observation.now if pending is None or pending.at is None else pending.at
            self.pending[profile.name] = PendingTransition(
                next=transition.next, check=transition.check.text, since=since, at=at
            )
            self._mark_in_maintenance(transition.next, profile)
            raise
        self.pending.pop(profile.name, None)
        self._mark_in_maintenance(transition.next, profile)
        return transition.next

    def _collect_claims(self, transition: StateTransition, profile: Profile, state: State) -> None:
        context = self._context(profile, state)
        claims: list[Claim] = []
        for member in transition.check.members:
            try:
                claims += self._call_plugin(member.plugin, partial(member.plugin.claims, context))
            except _PluginError as error:
                raise _ProfileFailed("At least one check plugin failed", f"{member.name}: {error}") from None
        needed = [claim for claim in claims if _is_required(claim, transition)]
        if self.observation.budget is not None and transition.next is State.IN_MAINTENANCE:
            needed.append(BudgetClaim(self.observation.budget.budget))
        # All claims of the profile or none: the reconciler takes them before the write.
        if needed:
            self.claims += [(profile.name, claim) for claim in needed]
            self.claimed_transitions[profile.name] = profile.states[state].transitions.index(transition)

    def _mark_in_maintenance(self, next_state: State, profile: Profile) -> None:
        if next_state is State.IN_MAINTENANCE:
            self.in_maintenance.add(profile.name)

    # Plugins

    def _call_plugin(self, plugin: Plugin, call: Callable[[], T]) -> T:
        """Call a plugin. A plugin may be third-party code, so any exception becomes an error of this profile only."""
        try:
            return call()
        except HauloutError as error:
            self._requeue_later()
            raise _DataUnavailable(str(error)) from None
        except Exception as error:  # noqa: BLE001 - plugins may be third-party code
            self._requeue_later()
            raise _PluginError(f"the plugin {plugin.type} failed: {error!r}") from None

    def _context(self, profile: Profile, state: State, status: ProfileStatus | None = None) -> PluginContext:
        return PluginContext(
            now=self.observation.now,
            node=self.draft.node,
            profile=profile.name,
            state=state,
            status=status or self.statuses[profile.name],
            is_in_maintenance=bool(self.in_maintenance),
            logs_details=self.observation.logs_details,
            cluster=self.observation.cluster,
            requeue=self.observation.requeue,
            held_leases=self.observation.held_leases,
            chain_started_at=self._chain_started_at(profile),
            checks_still_pass=self.checks_pass.get(profile.name, True),
            would_lead_here=partial(profile.is_reachable, state),
        )

    def _chain_started_at(self, profile: Profile) -> datetime | None:
        """Return when the current chain of a profile started: that of a pending transition or of entering a state."""
        pending, status = self.pending.get(profile.name), self.statuses[profile.name]
        if pending is not None:
            return pending.at
        return None if status.current == status.previous else status.transition

    # Whole node

    def drop_detached(self) -> None:
        """Drop the data of profiles that the node no longer has, unless another controller may manage them."""
        self.statuses = {
            name: status for name, status in self.statuses.items() if name in self.attached or self._is_unmanaged(name)
        }
        self.pending = {name: transition for name, transition in self.pending.items() if name in self.statuses}

    def record_workloads(self) -> None:
        """Record the workloads of the node before the first eviction, if a plugin compares them later.

        The record is written together with the cordon, so before the first eviction. It is removed when the node is
        operational again.
        """
        own_statuses = {name: it for name, it in self.statuses.items() if name in self.profiles}
        if not self.pending and all(it.current == State.OPERATIONAL for it in own_statuses.values()):
            self.draft = self.draft.with_annotations({workloads.WORKLOADS_ANNOTATION: None})
            return
        is_recorded = workloads.WORKLOADS_ANNOTATION in self.draft.before.metadata.annotations
        is_cordoned_now = _is_cordoned_by(self.draft.node, own_statuses) and not _is_cordoned_by(
            self.draft.before, own_statuses
        )
        if is_recorded and not is_cordoned_now:
            return
        if not any(
            plugin.needs_workload_record for name in own_statuses for _, plugin in self.profiles[name].members()
        ):
            return
        try:
            record = self.observation.cluster.workloads_on(self.draft.node.name)
        except HauloutError:
            return  # not known yet; the node is requeued when it is
        self.draft = self.draft.with_annotations({workloads.WORKLOADS_ANNOTATION: workloads.encode_annotation(record)})

    def decision(self) -> Decision:
        return Decision(
            draft=self.draft,
            statuses=self.statuses,
            last_sent=self.last_sent,
            pending=self.pending,
            reports=tuple(self.reports),
            claims=tuple(self.claims),
            claimed_transitions=self.claimed_transitions,
            external_actions=tuple(self.external_actions),
            drains=self.drains,
            notifications=tuple(self.notifications),
            requeue_at=self._requeue_at(),
            topics=frozenset(self.topics),
            attached_profiles=self.attached,
            data_update=self._data_update(),
            tampering=self.tampering,
            warnings=tuple(self.warnings),
            unmanaged_states=tuple(
                status.current for name, status in self.statuses.items() if self._is_unmanaged(name)
            ),
        )

    def _is_unmanaged(self, name: str) -> bool:
        """Return whether another controller manages a profile. False for all if the configuration covers all nodes."""
        return name not in self.profiles and not covers_all_nodes(self.profiles)

    def _data_update(self) -> DataUpdate:
        if all(map(self._is_unmanaged, (*self.attached, *self.observation.statuses))):
            return DataUpdate.NONE
        return DataUpdate.WRITE if self.statuses or covers_all_nodes(self.profiles) else DataUpdate.REMOVE

    def _requeue_at(self) -> datetime | None:
        earliest, now = min(self.requeue_times, default=None), self.observation.now
        return earliest if earliest is None or earliest > now else add_saturating(now, _MIN_REQUEUE_DELAY)


def _draft(observation: Observation) -> NodeDraft:
    """Return a draft of the node with its cordon annotation repaired."""
    return NodeDraft.of(observation.node, now=observation.now).with_repaired_cordon(
        _cordon_owners(observation), copy=observation.cordon_copy
    )


def _cordon_owners(observation: Observation) -> frozenset[str]:
    """Return the profiles that may own a cordon: those in maintenance or on their way into it."""
    names = {
        name for name, status in observation.statuses.items() if status.current != State.OPERATIONAL
    } | observation.pending.keys()
    return frozenset(f"profile/{name}" for name in names)


def _is_cordoned_by(node: Node, profiles: Iterable[str]) -> bool:
    """Return whether one of these profiles owns the cordon of a node; True if the annotation cannot be read."""
    try:
        mark = cordon.cordon_of(node)
    except InvalidCordonAnnotation:
        return True
    return mark is not None and any(f"profile/{name}" in mark.owners for name in profiles)


def _ongoing_transition(pending: PendingTransition, transitions: tuple[StateTransition, ...]) -> StateTransition | None:
    """Return the ongoing transition. If its checks were edited meanwhile, return the first one to the same state."""
    candidates = [transition for transition in transitions if transition.next is pending.next]
    return next(
        (transition for transition in candidates if transition.check.text == pending.check),
        candidates[0] if candidates else None,
    )


def _is_required(claim: Claim, transition: StateTransition) -> bool:
    """Return whether a transition takes a claim: only a transition into maintenance takes a slot."""
    return transition.next is State.IN_MAINTENANCE or not isinstance(claim, SlotClaim)
