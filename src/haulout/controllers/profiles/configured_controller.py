"""Runs the profiles controller with the configuration in the component's file, while this replica leads."""

import logging
from functools import partial

from haulout.api.reasons import OperatorEventReason
from haulout.controllers.profiles import default_profile
from haulout.controllers.profiles.component import ProfilesComponent
from haulout.controllers.profiles.config.profiles_file import ProfilesFile
from haulout.controllers.profiles.controller import NAME, ProfilesController
from haulout.controllers.profiles.events import ProfileEvents
from haulout.controllers.profiles.missing_permissions import RECHECK_INTERVAL, MissingPermissions
from haulout.controllers.profiles.view.informers import ProfileInformers
from haulout.runtime.component import Leader, Warn
from haulout.runtime.journal import Journal
from haulout.runtime.tasks import background, running

log = logging.getLogger(__name__)

_REPORTER = "maintenance"  # reporting controller of events, as in the SAP maintenance-controller


async def run_configured_controller(component: ProfilesComponent, leader: Leader) -> None:
    """Run until cancelled. The component shows the controller meanwhile."""
    # A recorder of its own: many events of pods must not delay those of nodes.
    events, pod_events = leader.events(_REPORTER), leader.events(_REPORTER)
    journal = Journal(NAME, events, metrics=leader.client.metrics)
    history = leader.history(component.history_backlog)
    informers: list[ProfileInformers] = []

    def make_informers(controller: ProfilesController) -> ProfileInformers:
        informers.append(ProfileInformers(controller, leader.client, external=component.outside))
        return informers[0]

    controller = ProfilesController(
        leader.client,
        events=ProfileEvents(journal, clock=leader.client.clock, pod_events=pod_events, metrics=component.counters),
        namespace=leader.namespace,
        informers=make_informers,
        nodes=leader.nodes,
        history=history,
        waiting_list=leader.waiting_list,
        drain_metrics=component.drain_metrics,
        handover=leader.handover,
        freezes=leader.freezes,
    )
    component.controller, component.informers, component.answers = controller, informers[0], informers[0].queries
    component.missing_permissions = MissingPermissions(leader.client, leader.warn, namespace=leader.namespace)
    configuration = _apply_configuration(
        component.file, controller, informers[0], leader.warn, component.missing_permissions
    )
    try:
        async with running(events, pod_events, history), background(configuration):
            await controller.run()
    finally:
        component.controller = component.answers = component.informers = component.missing_permissions = None


async def _apply_configuration(
    file: ProfilesFile,
    controller: ProfilesController,
    informers: ProfileInformers,
    warn: Warn,
    missing_permissions: MissingPermissions,
) -> None:
    """Apply each configuration to the controller, without plugins that lack permissions; until cancelled."""
    last_configuration, reported_problem, has_unfinished_nodes, in_force = None, None, False, file.configuration
    with_default_profile = partial(
        default_profile.effective_configuration, recovery=default_profile.recovery_timeout(file.environ)
    )
    while True:
        is_new = file.configuration is not last_configuration
        if is_new:
            last_configuration = file.configuration
            # While it was in force, it may have started on a node that the informer does not show yet.
            has_unfinished_nodes = has_unfinished_nodes or not last_configuration.profiles
            in_force = with_default_profile(last_configuration, has_unfinished_nodes=has_unfinished_nodes)
        has_changed = await missing_permissions.refresh(in_force) if is_new or missing_permissions.missing else False
        if is_new and not has_unfinished_nodes and await controller.any_node(default_profile.is_unfinished_on):
            in_force, has_unfinished_nodes = with_default_profile(file.configuration, has_unfinished_nodes=True), True
            await missing_permissions.refresh(in_force)
        if is_new or has_changed:
            usable = missing_permissions.without_forbidden_plugins(in_force)
            await informers.prepare(usable)
            controller.use(usable)
        if is_new:
            log.info("profiles: %s", ", ".join(in_force.profiles))
        if file.problem is not reported_problem:
            reported_problem = file.problem
            if reported_problem is not None:
                note = f"{reported_problem}; the last good configuration stays in force"
                await warn(note, reason=OperatorEventReason.CONFIGURATION_REFUSED, action="LoadConfiguration")
        await file.wait_for_change(timeout=RECHECK_INTERVAL if missing_permissions.missing else None)
