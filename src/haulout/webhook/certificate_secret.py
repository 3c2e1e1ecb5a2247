"""The webhook's certificate in a Secret: one that somebody gives us, or one that we make and the replicas share.

Both have API servers told which authorities to trust (`CABundleInjector`), as the Secret has them at that moment: a
replica that hears late must not tell them something old.

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

from haulout.api.objects import RawObject, Secret, object_key
from haulout.api.resources import SECRETS
from haulout.core.clock import Clock
from haulout.core.key_pair import KeyPair
from haulout.errors import AlreadyExists, ConfigError, Conflict, NotFound
from haulout.httpserver.serving_certificate import InvalidCertificate, ServingCertificate
from haulout.kube.client import Client
from haulout.kube.patches import merge_patch
from haulout.webhook import certificate_rotation
from haulout.webhook.ca_bundle_injection import CABundleInjector, WebhookReference
from haulout.webhook.certificate_generator import CertificateGenerator, InProcessGenerator
from haulout.webhook.certificate_rotation import CertificateSet
from haulout.webhook.object_reconciler import ObjectReconciler

log = logging.getLogger(__name__)

MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "haulout"
_MAX_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class SecretReference:
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


class _SecretSource:
    """A certificate from a Secret."""

    def __init__(
        self,
        client: Client,
        reference: SecretReference,
        serving_certificate: ServingCertificate,
        *,
        registration: WebhookReference,
        clock: Clock,
    ) -> None:
        self.reference = reference
        self._client = client
        self._clock = clock
        self._serving_certificate = serving_certificate
        self._injector = CABundleInjector(client, registration, ca_bundle=self.ca_bundle, clock=clock)
        self._reconciler = ObjectReconciler(
            client, SECRETS, reference.name, namespace=reference.namespace, reconcile=self._reconcile, clock=clock
        )

    @property
    def problem(self) -> str | None:
        """Why what is in the Secret is not shown."""
        return self._reconciler.problem

    @property
    def trust_problem(self) -> str | None:
        """Why API servers may not trust what is shown."""
        return self._injector.trust_problem

    async def run(self) -> None:
        """Follow the Secret and the registration until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._reconciler.run())
            group.create_task(self._injector.run())

    async def ca_bundle(self) -> bytes | None:
        """Return what is to be trusted as the Secret has it now, None if it does not say."""
        raise NotImplementedError

    async def _reconcile(self) -> datetime | None:
        raise NotImplementedError

    def _update_serving(self, identity: KeyPair) -> None:
        if identity == self._serving_certificate.identity:
            return
        try:
            self._serving_certificate.update(identity)
        except InvalidCertificate as error:
            raise ConfigError(f"{self.reference}: {error}") from None
        log.info("the webhook shows the certificate in %s", self.reference)


class UserProvidedSecret(_SecretSource):
    """Shows what somebody else keeps in a Secret (`tls.crt`, `tls.key`), and has its `ca.crt`, if any, trusted."""

    async def ca_bundle(self) -> bytes | None:
        """Return what is to be trusted."""
        secret = await self.reference.find(self._client)
        return self._value(secret, "ca.crt") if secret and "ca.crt" in (secret.data or {}) else None

    async def _reconcile(self) -> datetime | None:
        secret = await self.reference.find(self._client)
        if secret is None:
            raise ConfigError(f"{self.reference} is not there; create it with tls.crt and tls.key, or name another")
        self._update_serving(KeyPair(self._value(secret, "tls.crt"), self._value(secret, "tls.key")))
        self._injector.enqueue()
        return None

    def _value(self, secret: Secret, key: str) -> bytes:
        try:
            return base64.b64decode((secret.data or {})[key], validate=True)
        except (KeyError, binascii.Error):
            raise ConfigError(f"{self.reference} has no {key}, or not in base64") from None


class SelfManagedSecret(_SecretSource):
    """Makes certificates for `hosts`, keeps them in a Secret, and renews them before they end."""

    def __init__(
        self,
        client: Client,
        reference: SecretReference,
        serving_certificate: ServingCertificate,
        *,
        hosts: Sequence[str],
        registration: WebhookReference,
        clock: Clock,
        generator: CertificateGenerator | None = None,
    ) -> None:
        super().__init__(client, reference, serving_certificate, registration=registration, clock=clock)
        self._hosts = tuple(hosts)
        self._generator = generator or InProcessGenerator()
        self._certificates: CertificateSet | None = None  # as last seen or written

    async def ca_bundle(self) -> bytes | None:
        """Return what is to be trusted; nothing while the Secret is not as it should be: that is mended first."""
        certificates = await self._read(await self.reference.find(self._client))
        return certificates.ca_bundle if certificates else None

    async def _reconcile(self) -> datetime | None:
        for _ in range(_MAX_ATTEMPTS):
            secret = await self.reference.find(self._client)
            stored = await self._read(secret)
            current = stored or self._certificates
            rotation = await self._generator.rotate(
                current,
                hosts=self._hosts,
                now=self._clock.now(),
                is_ca_trusted=current is not None and self._injector.is_trusted(current.ca_bundle),
                name=f"{self.reference.name} authority",
            )
            if rotation.certificates == stored or await self._store(secret, rotation.certificates):
                self._certificates = rotation.certificates
                self._update_serving(rotation.certificates.serving.identity)
                self._injector.enqueue()
                return rotation.requeue_at
        raise ConfigError(f"{self.reference} is written by others all the time; find out who")

    async def _read(self, secret: Secret | None) -> CertificateSet | None:
        if secret is None:
            return None
        if secret.metadata.labels.get(MANAGED_BY) != MANAGER:
            raise ConfigError(
                f"{self.reference} is there and not ours (it has no "
                f"label {MANAGED_BY}={MANAGER}); name another for the "
                "certificate of the webhook, or delete it"
            )
        try:
            return await self._generator.read(secret.data or {})
        except ValueError as error:
            log.warning("%s is broken: %s; it will be written again", self.reference, error)
            return None

    async def _store(self, secret: Secret | None, certificates: CertificateSet) -> bool:
        """Tell whether the Secret has these keys now; not if somebody else was quicker."""
        data = certificate_rotation.to_secret_data(certificates)
        try:
            if secret is None:
                await self._client.create(SECRETS, self._new_secret(data), namespace=self.reference.namespace)
            else:
                change = merge_patch({"metadata": {"resourceVersion": secret.resource_version}, "data": data})
                await self._client.patch(SECRETS, self.reference.name, change, namespace=self.reference.namespace)
        except (AlreadyExists, Conflict, NotFound) as error:
            log.info("%s was written by another replica (%s)", self.reference, error)
            return False
        log.info(
            "%s: wrote %s",
            self.reference,
            "the next certificate, to be shown later" if certificates.next else "a certificate",
        )
        return True

    def _new_secret(self, data: dict[str, str | None]) -> RawObject:
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": self.reference.name, "labels": {MANAGED_BY: MANAGER}},
            "type": "kubernetes.io/tls",
            "data": {key: value for key, value in data.items() if value is not None},
        }
