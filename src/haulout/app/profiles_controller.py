"""Runs the controller of profiles for a term of leadership, with the configuration that is in force."""

import asyncio
import logging
from datetime import timedelta
from functools import partial

from haulout.api.objects import Node
from haulout.api.reasons import OperatorEventReason
from haulout.app.operator_events import OperatorEvents
from haulout.app.permissions import RECHECK_INTERVAL, MissingPermissions
from haulout.app.profiles import ProfilesComponent
from haulout.app.profiles_file import ProfilesFile
from haulout.budget.budget_check import WaitingList
from haulout.controllers.profiles import default_profile
from haulout.controllers.profiles.controller import ProfilesController, ProfileSettings
from haulout.controllers.profiles.events import ProfileEvents
from haulout.controllers.profiles.view.informers import ProfileInformers
from haulout.errors import LeadershipHandover
from haulout.history.writer import HistoryWriter
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.kube.recorder import EventRecorder

log = logging.getLogger(__name__)

_REPORTER = "maintenance"  # reporting controller of events, as in the SAP maintenance-controller
_FLUSH_TIMEOUT = timedelta(seconds=2)


async def run_profiles_controller(
    client: Client,
    *,
    profiles: ProfilesComponent,
    namespace: str,
    own_node: str,
    identity: str,
    nodes: Informer[Node] | None,
    waiting_list: WaitingList | None,
) -> None:
    """Run the controller until cancelled; raise `LeadershipHandover` when a profile is about to drain `own_node`."""
    settings = ProfileSettings(namespace=namespace, own_node=own_node)
    # A recorder of its own: many events of pods must not delay those of nodes.
    events, pod_events = (EventRecorder(client, instance=identity, controller=_REPORTER) for _ in range(2))
    informers: list[ProfileInformers] = []
    handover: LeadershipHandover | None = None

    def make_informers(controller: ProfilesController) -> ProfileInformers:
        informers.append(ProfileInformers(controller, client, external=profiles.outside))
        return informers[0]

    operator_events = OperatorEvents(client, events, settings.namespace)
    history = HistoryWriter(
        client, profiles.history_backlog, warn=operator_events.warn_of_history, on_created=profiles.on_record_created
    )
    controller = ProfilesController(
        client,
        events=ProfileEvents(events, clock=client.clock, pod_events=pod_events, metrics=profiles.metrics),
        settings=settings,
        informers=make_informers,
        nodes=nodes,
        history=history,
        waiting_list=waiting_list,
        drain_metrics=profiles.drain_metrics,
    )
    async with asyncio.TaskGroup() as group:
        writers = [group.create_task(writer.run()) for writer in (events, pod_events, history)]
        missing_permissions = MissingPermissions(client, operator_events, namespace=settings.namespace)
        configuration_task = group.create_task(
            _apply_configuration(profiles.file, controller, informers[0], operator_events, missing_permissions)
        )
        profiles.controller, profiles.answers = controller, informers[0].queries
        profiles.informers, profiles.missing_permissions = informers[0], missing_permissions
        try:
            await controller.run()
        except LeadershipHandover as error:
            handover = error
        finally:
            profiles.controller = profiles.answers = profiles.informers = profiles.missing_permissions = None
            configuration_task.cancel()
            await asyncio.gather(*(writer.flush(_FLUSH_TIMEOUT) for writer in (history, events, pod_events)))
            for task in writers:
                task.cancel()
    if handover is not None:
        raise handover


async def _apply_configuration(
    file: ProfilesFile,
    controller: ProfilesController,
    informers: ProfileInformers,
    operator_events: OperatorEvents,
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
            usable = missing_permissions.without_barred(in_force)
            await informers.prepare(usable)
            controller.use(usable)
        if is_new:
            log.info("profiles: %s", ", ".join(in_force.profiles))
        if file.problem is not reported_problem:
            reported_problem = file.problem
            if reported_problem is not None:
                note = f"{reported_problem}; the last good configuration stays in force"
                await operator_events.warn(
                    note, reason=OperatorEventReason.CONFIGURATION_REFUSED, action="LoadConfiguration"
                )
        await file.wait_for_change(timeout=RECHECK_INTERVAL if missing_permissions.missing else None)
