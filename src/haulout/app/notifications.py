"""Notifications about NodeMaintenances and MaintenanceNotices: wiring. The leader sends them.

They need no lease of the SAP maintenance-controller, which sends none of these. If they or their receivers fail,
nothing else is affected.
"""

from collections.abc import Iterable

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, MaintenanceNotice
from haulout.api.nodemaintenance import NODE_MAINTENANCES, NodeMaintenance
from haulout.api.reasons import OperatorEventReason
from haulout.controllers.nodemaintenance import notification as of_maintenances
from haulout.controllers.notices import events as of_notices
from haulout.controllers.notices.component import NoticesComponent
from haulout.controllers.profiles.component import ProfilesComponent
from haulout.controllers.profiles.notify.object_notifier import NotifiedKind, ObjectNotifier
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.kube.recorder import EventRecorder
from haulout.runtime.operator_events import OperatorEvents


async def run_notifications(
    client: Client,
    profiles: ProfilesComponent,
    *,
    events: EventRecorder,
    maintenances: Informer[NodeMaintenance],
    notices: NoticesComponent,
    operator_events: OperatorEvents,
) -> None:
    """Send the configured notifications until cancelled; the caller runs `events` and the informers."""

    async def work() -> None:
        notifier = ObjectNotifier(
            client,
            profiles.outside,
            events=events,
            kinds=(_maintenance_kind(maintenances), _notice_kind(notices)),
        )

        def on_maintenance(before: NodeMaintenance | None, after: NodeMaintenance | None) -> None:
            notifier.enqueue(NODE_MAINTENANCES.kind, (after or before or NodeMaintenance()).name)

        def on_notice(name: str) -> None:
            notifier.enqueue(MAINTENANCE_NOTICES.kind, name)

        notices.subscribers.append(on_notice)
        unsubscribes = (
            maintenances.subscribe(on_maintenance),
            profiles.file.subscribe(lambda configuration: notifier.use(configuration.notifications)),
        )
        try:
            await notifier.run()
        finally:
            notices.subscribers.remove(on_notice)
            for unsubscribe in unsubscribes:
                unsubscribe()

    async def report(note: str) -> None:
        await operator_events.warn(note, reason=OperatorEventReason.NOTIFICATIONS_FAILED, action="Notify")

    await profiles.notifications_supervisor.run(work, client=client, report=report)


def _maintenance_kind(cache: Informer[NodeMaintenance]) -> NotifiedKind[NodeMaintenance]:
    return NotifiedKind(
        resource=NODE_MAINTENANCES,
        get=cache.get,
        all=cache.all,
        events=of_maintenances.object_events,
        involved_object=of_maintenances.involved_object,
    )


def _notice_kind(notices: NoticesComponent) -> NotifiedKind[MaintenanceNotice]:
    def get(name: str) -> MaintenanceNotice | None:
        return None if notices.controller is None else notices.controller.notices.get(name)

    def list_notices() -> Iterable[MaintenanceNotice]:
        return () if notices.controller is None else notices.controller.notices.all()

    return NotifiedKind(
        resource=MAINTENANCE_NOTICES,
        get=get,
        all=list_notices,
        events=of_notices.notified_events,
        involved_object=of_notices.involved_object,
    )
