"""The permissions that a configuration of profiles needs, and those of them that the operator lacks.

Each new configuration is checked by access reviews. While a permission is missing, the check repeats, so that granting
it is enough, without a restart. A missing permission disables only the plugins that need it
(`haulout.controllers.profiles.config.forbidden_plugins`).
"""

import logging
from datetime import timedelta

from haulout.api.leases import PROFILES_LEASE
from haulout.controllers.profiles import default_profile
from haulout.controllers.profiles import permissions as profiles
from haulout.controllers.profiles.config.forbidden_plugins import (
    PERMISSIONS_MISSING,
    format_refusals,
    without_forbidden_plugins,
)
from haulout.controllers.profiles.config.model import Configuration
from haulout.errors import KubeError
from haulout.kube import leases, rbac
from haulout.kube.client import Client
from haulout.kube.rbac import DeniedPermission, Permission
from haulout.runtime.component import Warn

log = logging.getLogger(__name__)

RECHECK_INTERVAL = timedelta(seconds=30)  # while a permission is missing
_EVENT_EVERY = 20  # checks between two events: the API server deletes events after an hour


def profile_permissions(configuration: Configuration | None, *, namespace: str) -> tuple[Permission, ...]:
    """Return what a configuration needs, with the lease of profiles; None: what most configurations need."""
    lease_permissions = leases.permissions(
        namespace=namespace, why="elect the leader for profiles", names=(PROFILES_LEASE,), watched=True
    )
    if configuration is None:
        return *lease_permissions, *profiles.default_permissions(namespace=namespace)
    return *lease_permissions, *profiles.permissions(
        default_profile.effective_configuration(configuration), namespace=namespace
    )


class MissingPermissions:
    """The missing permissions of the current configuration; `namespace` is the operator's."""

    def __init__(self, client: Client, warn: Warn, *, namespace: str) -> None:
        self.missing: tuple[DeniedPermission, ...] = ()
        self._client = client
        self._warn = warn
        self._namespace = namespace
        self._checks = 0

    async def refresh(self, configuration: Configuration) -> bool:
        """Check the permissions of a configuration, and report missing ones; return whether the result changed."""
        required = profile_permissions(configuration, namespace=self._namespace)
        try:
            missing = tuple(await rbac.denied_permissions(self._client, required))
        except KubeError as error:
            log.warning("cannot check the permissions of the operator: %s", error)
            return False
        before, self.missing = self.missing, missing
        has_changed = before != missing
        self._checks = 0 if has_changed else self._checks + 1
        if missing and self._checks % _EVENT_EVERY == 0:
            await self._report(format_refusals(missing))
        elif before and not missing:
            log.info("all permissions that profiles need are granted")
        return has_changed

    def without_forbidden_plugins(self, configuration: Configuration) -> Configuration:
        """Return the configuration without the plugins that need a missing permission."""
        return without_forbidden_plugins(configuration, self.missing, namespace=self._namespace)

    async def _report(self, missing: str) -> None:
        log.warning("profiles need permissions that the operator does not have: %s", missing)
        advice = "`haulout manifests --config FILE` prints what to grant"
        note = f"the operator lacks permissions that profiles need: {missing}; everything else continues; {advice}"
        await self._warn(note, reason=PERMISSIONS_MISSING, action="CheckPermissions")
