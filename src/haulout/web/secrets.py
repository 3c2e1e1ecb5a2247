"""The webhook's certificate in a Secret: one that somebody gives us, or one that we make and the replicas share.

Both have API servers told which authorities to trust (`Injector`), as the Secret has them at that moment: a replica
that hears late must not tell them something old.

Whatever happens to a Secret of ours, what is shown works on: one that was deleted or broken is written again from
memory, and two replicas that write at once end up with the same, since each write is one only if nobody was quicker.
"""

import asyncio
import base64
import binascii
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from haulout.core.clock import Clock
from haulout.errors import AlreadyExists, ConfigError, Conflict, NotFound
from haulout.kube.client import Client
from haulout.kube.network.shown import Identity
from haulout.kube.objects import RawObject, Secret, object_key
from haulout.kube.patches import merge_patch
from haulout.kube.resources import SECRETS
from haulout.web import generations
from haulout.web.following import Following
from haulout.web.generations import Keys
from haulout.web.injection import Injector, Registration
from haulout.web.keysmith import Here, Keysmith
from haulout.web.presented import Presented, Unfit

log = logging.getLogger(__name__)

MANAGED_BY = "app.kubernetes.io/managed-by"
US = "haulout"
_TRIES = 5


@dataclass(frozen=True, slots=True)
class Place:
    """Which Secret."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"Secret {object_key(self.name, self.namespace)}"

    async def find(self, client: Client) -> Secret | None:
        """Return it as it is now."""
        try:
            return await client.get(SECRETS, self.name, namespace=self.namespace)
        except NotFound:
            return None


class _Source:
    """A certificate from a Secret."""

    def __init__(
        self, client: Client, place: Place, presented: Presented, *, registration: Registration, clock: Clock
    ) -> None:
        self.place = place
        self._client = client
        self._clock = clock
        self._presented = presented
        self._injector = Injector(client, registration, authorities=self.authorities, clock=clock)
        self._following = Following(
            client, SECRETS, place.name, namespace=place.namespace, look=self._look, clock=clock
        )

    @property
    def problem(self) -> str | None:
        """Why what is in the Secret is not shown."""
        return self._following.problem

    @property
    def trouble(self) -> str | None:
        """Why API servers may not trust what is shown."""
        return self._injector.trouble

    async def run(self) -> None:
        """Follow the Secret and the registration until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._following.run())
            group.create_task(self._injector.run())

    async def authorities(self) -> bytes | None:
        """Return what is to be trusted as the Secret has it now, None if it does not say."""
        raise NotImplementedError

    async def _look(self) -> datetime | None:
        raise NotImplementedError

    def _show(self, identity: Identity) -> None:
        if identity == self._presented.identity:
            return
        try:
            self._presented.show(identity)
        except Unfit as error:
            raise ConfigError(f"{self.place}: {error}") from None
        log.info("the webhook shows the certificate in %s", self.place)


class GivenSecret(_Source):
    """Shows what somebody else keeps in a Secret (`tls.crt`, `tls.key`), and has its `ca.crt`, if any, trusted."""

    async def authorities(self) -> bytes | None:
        """Return what is to be trusted."""
        secret = await self.place.find(self._client)
        return self._value(secret, "ca.crt") if secret and "ca.crt" in (secret.data or {}) else None

    async def _look(self) -> datetime | None:
        secret = await self.place.find(self._client)
        if secret is None:
            raise ConfigError(f"{self.place} is not there; create it with tls.crt and tls.key, or name another")
        self._show(Identity(self._value(secret, "tls.crt"), self._value(secret, "tls.key")))
        self._injector.poke()
        return None

    def _value(self, secret: Secret, key: str) -> bytes:
        try:
            return base64.b64decode((secret.data or {})[key], validate=True)
        except (KeyError, binascii.Error):
            raise ConfigError(f"{self.place} has no {key}, or not in base64") from None


class OwnSecret(_Source):
    """Makes certificates for `hosts`, keeps them in a Secret, and renews them before they end."""

    def __init__(
        self,
        client: Client,
        place: Place,
        presented: Presented,
        *,
        hosts: Sequence[str],
        registration: Registration,
        clock: Clock,
        smith: Keysmith | None = None,
    ) -> None:
        super().__init__(client, place, presented, registration=registration, clock=clock)
        self._hosts = tuple(hosts)
        self._smith = smith or Here()
        self._keys: Keys | None = None  # as last seen or written

    async def authorities(self) -> bytes | None:
        """Return what is to be trusted; nothing while the Secret is not as it should be: that is mended first."""
        keys = await self._read(await self.place.find(self._client))
        return keys.authorities if keys else None

    async def _look(self) -> datetime | None:
        for _ in range(_TRIES):
            secret = await self.place.find(self._client)
            known = await self._read(secret)
            believed = known or self._keys
            step = await self._smith.step(
                believed,
                hosts=self._hosts,
                now=self._clock.now(),
                trusted=believed is not None and self._injector.trusts(believed.authorities),
                name=f"{self.place.name} authority",
            )
            if step.keys == known or await self._stored(secret, step.keys):
                self._keys = step.keys
                self._show(step.keys.served.identity)
                self._injector.poke()
                return step.wakes_at
        raise ConfigError(f"{self.place} is written by others all the time; find out who")

    async def _read(self, secret: Secret | None) -> Keys | None:
        if secret is None:
            return None
        if secret.metadata.labels.get(MANAGED_BY) != US:
            raise ConfigError(
                f"{self.place} is there and not ours (it has no label {MANAGED_BY}={US}); name another for the "
                "certificate of the webhook, or delete it"
            )
        try:
            return await self._smith.read(secret.data or {})
        except ValueError as error:
            log.warning("%s is broken: %s; it will be written again", self.place, error)
            return None

    async def _stored(self, secret: Secret | None, keys: Keys) -> bool:
        """Tell whether the Secret has these keys now; not if somebody else was quicker."""
        data = generations.write(keys)
        try:
            if secret is None:
                await self._client.create(SECRETS, self._new(data), namespace=self.place.namespace)
            else:
                change = merge_patch({"metadata": {"resourceVersion": secret.resource_version}, "data": data})
                await self._client.patch(SECRETS, self.place.name, change, namespace=self.place.namespace)
        except (AlreadyExists, Conflict, NotFound) as error:
            log.info("%s was written by another replica (%s)", self.place, error)
            return False
        log.info(
            "%s: wrote %s", self.place, "the next certificate, to be shown later" if keys.next else "a certificate"
        )
        return True

    def _new(self, data: dict[str, str | None]) -> RawObject:
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": self.place.name, "labels": {MANAGED_BY: US}},
            "type": "kubernetes.io/tls",
            "data": {key: value for key, value in data.items() if value is not None},
        }
