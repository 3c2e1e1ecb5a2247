"""Which permissions the operator lacks for a configuration of profiles, and how people hear of it.

The server is asked when a configuration comes into force and, while something is missing, again and again: granting it
is enough, nothing has to be restarted. What is missing bars the plugins that need it, and nothing else
(`haulout.controllers.profiles.config.forbidden_plugins`).
"""

import logging
from datetime import timedelta

from haulout.app import required_permissions
from haulout.app.operator_events import OperatorEvents
from haulout.controllers.profiles.config.forbidden_plugins import (
    PERMISSIONS_MISSING,
    format_refusals,
    without_forbidden_plugins,
)
from haulout.controllers.profiles.config.model import Configuration
from haulout.errors import KubeError
from haulout.kube import rbac
from haulout.kube.client import Client
from haulout.kube.rbac import DeniedPermission

log = logging.getLogger(__name__)

RECHECK_INTERVAL = timedelta(seconds=30)  # while something is missing
_EVENT_EVERY = 20  # times that it was asked: events are forgotten after an hour


class MissingPermissions:
    """What the operator may do for its profiles, as the server says; it lives in `namespace`."""

    def __init__(self, client: Client, operator_events: OperatorEvents, *, namespace: str) -> None:
        self.missing: tuple[DeniedPermission, ...] = ()
        self._client = client
        self._operator_events = operator_events
        self._namespace = namespace
        self._checks = 0

    async def refresh(self, configuration: Configuration) -> bool:
        """Ask what is missing for a configuration, and tell it; return whether that has changed."""
        required = required_permissions.profile_permissions(configuration, namespace=self._namespace)
        try:
            missing = tuple(await rbac.denied_permissions(self._client, required))
        except KubeError as error:
            log.warning("whether permissions are missing cannot be told: %s", error)
            return False
        before, self.missing = self.missing, missing
        has_changed = before != missing
        self._checks = 0 if has_changed else self._checks + 1
        if missing and self._checks % _EVENT_EVERY == 0:
            await self._report(format_refusals(missing))
        elif before and not missing:
            log.info("all permissions are there that profiles need")
        return has_changed

    def without_barred(self, configuration: Configuration) -> Configuration:
        """Return a configuration without what needs a permission that is missing."""
        return without_forbidden_plugins(configuration, self.missing, namespace=self._namespace)

    async def _report(self, missing: str) -> None:
        log.warning("profiles need permissions that the operator does not have: %s", missing)
        advice = "`haulout manifests --config FILE` prints what to grant"
        note = f"profiles need what the operator may not do: {missing}; all else goes on; {advice}"
        await self._operator_events.warn(note, reason=PERMISSIONS_MISSING, action="CheckPermissions")
