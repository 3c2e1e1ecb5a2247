"""Notifications about NodeMaintenances and MaintenanceNotices as a component of the operator.

They need no lease of the SAP maintenance-controller, which sends none of these. If they or their receivers fail,
nothing else is affected.
"""

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, MaintenanceNotice
from haulout.api.nodemaintenance import NODE_MAINTENANCES, NodeMaintenance
from haulout.api.reasons import OperatorEventReason
from haulout.controllers.nodemaintenance import notification as of_maintenances
from haulout.controllers.notices import events as of_notices
from haulout.controllers.profiles.component import ProfilesComponent
from haulout.controllers.profiles.notify.object_notifier import NotifiedKind, ObjectNotifier
from haulout.kube.informer import Informer
from haulout.runtime.component import Component, Leader
from haulout.runtime.journal import Journal
from haulout.runtime.tasks import running


class NotificationsComponent(Component):
    """Sends the notifications that the profiles' file configures."""

    title, failure_reason, action = "object notifications", OperatorEventReason.NOTIFICATIONS_FAILED, "Notify"

    def __init__(self, profiles: ProfilesComponent) -> None:
        super().__init__()
        self._profiles = profiles

    async def lead(self, leader: Leader) -> None:
        maintenances, notices = leader.informers.maintenances, leader.informers.notices
        events = leader.events("NodeMaintenance")
        notifier = ObjectNotifier(
            leader.client,
            self._profiles.outside,
            journal=Journal("notifications", events, metrics=leader.client.metrics),
            kinds=(_maintenance_kind(maintenances), _notice_kind(notices)),
        )

        def on_maintenance(before: NodeMaintenance | None, after: NodeMaintenance | None) -> None:
            notifier.enqueue(NODE_MAINTENANCES.kind, (after or before or NodeMaintenance()).name)

        def on_notice(before: MaintenanceNotice | None, after: MaintenanceNotice | None) -> None:
            notifier.enqueue(MAINTENANCE_NOTICES.kind, (after or before or MaintenanceNotice()).name)

        unsubscribes = (
            maintenances.subscribe(on_maintenance),
            notices.subscribe(on_notice),
            self._profiles.file.subscribe(lambda configuration: notifier.use(configuration.notifications)),
        )
        try:
            async with running(events):
                await notifier.run()
        finally:
            for unsubscribe in unsubscribes:
                unsubscribe()


def _maintenance_kind(informer: Informer[NodeMaintenance]) -> NotifiedKind[NodeMaintenance]:
    return NotifiedKind(
        resource=NODE_MAINTENANCES,
        get=informer.get,
        all=informer.all,
        events=of_maintenances.object_events,
        involved_object=of_maintenances.involved_object,
    )


def _notice_kind(informer: Informer[MaintenanceNotice]) -> NotifiedKind[MaintenanceNotice]:
    return NotifiedKind(
        resource=MAINTENANCE_NOTICES,
        get=informer.get,
        all=informer.all,
        events=of_notices.notified_events,
        involved_object=of_notices.involved_object,
    )
