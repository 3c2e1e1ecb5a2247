"""Notifications of NodeMaintenances and MaintenanceNotices under the operator: sent by the leader, a part of its own.

They need no lease of the SAP maintenance-controller: it sends none of these. Should they break, or their receivers, all
else goes on.
"""

from collections.abc import Iterable

from haulout.app.announcing import Announcer
from haulout.app.notices import Notices
from haulout.app.profiles import Profiles
from haulout.kinds.notice import MAINTENANCE_NOTICES, MaintenanceNotice
from haulout.kube.cache import Cache
from haulout.kube.client import Client
from haulout.kube.events import EventRecorder
from haulout.maintenance import notification as of_maintenances
from haulout.maintenance.resource import NODE_MAINTENANCES, NodeMaintenance
from haulout.notices import notification as of_notices
from haulout.profiles.object_notifier import NotifiedKind, ObjectNotifier


async def see_to_notifications(
    client: Client,
    profiles: Profiles,
    *,
    events: EventRecorder,
    maintenances: Cache[NodeMaintenance],
    notices: Notices,
    announcer: Announcer,
) -> None:
    """Send what the configuration says, until cancelled; others run `events` and the caches."""

    async def work() -> None:
        notifier = ObjectNotifier(
            client,
            profiles.outside,
            events=events,
            kinds=(_maintenances(maintenances), _notices(notices)),
        )

        def note(before: NodeMaintenance | None, after: NodeMaintenance | None) -> None:
            notifier.note(NODE_MAINTENANCES.kind, (after or before or NodeMaintenance()).name)

        def note_notice(name: str) -> None:
            notifier.note(MAINTENANCE_NOTICES.kind, name)

        notices.hearers.append(note_notice)
        ends = maintenances.subscribe(note), profiles.configured.subscribe(lambda it: notifier.use(it.notifications))
        try:
            await notifier.run()
        finally:
            notices.hearers.remove(note_notice)
            for end in ends:
                end()

    async def tell(note: str) -> None:
        await announcer.warn(note, reason="NotificationsBroke", action="Notify")

    await profiles.notifying.run(work, client=client, tell=tell)


def _maintenances(cache: Cache[NodeMaintenance]) -> NotifiedKind[NodeMaintenance]:
    return NotifiedKind(
        resource=NODE_MAINTENANCES,
        get=cache.get,
        all=cache.all,
        events=of_maintenances.events,
        involved_object=of_maintenances.involved_object,
    )


def _notices(notices: Notices) -> NotifiedKind[MaintenanceNotice]:
    def get(name: str) -> MaintenanceNotice | None:
        return None if notices.controller is None else notices.controller.notices.get(name)

    def all_() -> Iterable[MaintenanceNotice]:
        return () if notices.controller is None else notices.controller.notices.all()

    return NotifiedKind(
        resource=MAINTENANCE_NOTICES,
        get=get,
        all=all_,
        events=of_notices.events,
        involved_object=of_notices.involved_object,
    )
