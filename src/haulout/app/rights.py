"""Which permissions the operator lacks for a configuration of profiles, and how people hear of it.

The server is asked when a configuration comes into force and, while something is missing, again and again: granting it
is enough, nothing has to be restarted. What is missing bars the plugins that need it, and nothing else
(`haulout.profiles.barred`).
"""

import logging
from datetime import timedelta

from haulout.app import needs
from haulout.app.announcing import Announcer
from haulout.errors import KubeError
from haulout.kube import access
from haulout.kube.access import Refusal
from haulout.kube.client import Client
from haulout.profiles.barred import EVENT, barred, in_words
from haulout.profiles.model import Configuration

log = logging.getLogger(__name__)

ASKED_EVERY = timedelta(seconds=30)  # while something is missing
_TOLD_EVERY = 20  # times that it was asked: events are forgotten after an hour


class Rights:
    """What the operator may do for its profiles, as the server says; it lives in `namespace`."""

    def __init__(self, client: Client, announcer: Announcer, *, namespace: str) -> None:
        self.lacking: tuple[Refusal, ...] = ()
        self._client = client
        self._announcer = announcer
        self._namespace = namespace
        self._asked = 0

    async def look(self, configuration: Configuration) -> bool:
        """Ask what is missing for a configuration, and tell it; return whether that has changed."""
        needed = needs.of_profiles(configuration, namespace=self._namespace)
        try:
            lacking = tuple(await access.missing(self._client, needed))
        except KubeError as error:
            log.warning("whether permissions are missing cannot be told: %s", error)
            return False
        before, self.lacking = self.lacking, lacking
        has_changed = before != lacking
        self._asked = 0 if has_changed else self._asked + 1
        if lacking and self._asked % _TOLD_EVERY == 0:
            await self._tell(in_words(lacking))
        elif before and not lacking:
            log.info("all permissions are there that profiles need")
        return has_changed

    def usable(self, configuration: Configuration) -> Configuration:
        """Return a configuration without what needs a permission that is missing."""
        return barred(configuration, self.lacking, namespace=self._namespace)

    async def _tell(self, what: str) -> None:
        log.warning("profiles need permissions that the operator does not have: %s", what)
        advice = "`haulout manifests --config FILE` prints what to grant"
        note = f"profiles need what the operator may not do: {what}; all else goes on; {advice}"
        await self._announcer.warn(note, reason=EVENT, action="CheckPermissions")
