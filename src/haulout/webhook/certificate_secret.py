"""The webhook's certificate in a Secret: provided by the user, or issued by us and shared by the replicas.

Both kinds inject the CA bundle (`CABundleInjector`). They read it from the Secret at that moment, so that a replica
with a stale cache does not write an old bundle.

If a Secret of ours is deleted or broken, the webhook continues to serve, and the Secret is written again from memory.
Replicas that write at once converge: each write has a precondition on the resourceVersion.
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
    """The namespace and name of a Secret."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"Secret {object_key(self.name, self.namespace)}"

    async def find(self, client: Client) -> Secret | None:
        """Return the Secret, read live; None if there is none."""
        return await client.find(SECRETS, self.name, namespace=self.namespace)


class _SecretSource:
    """A serving certificate that a Secret holds."""

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
        """Why the certificate in the Secret is not served."""
        return self._reconciler.problem

    @property
    def trust_problem(self) -> str | None:
        """Why API servers may not trust the certificate."""
        return self._injector.trust_problem

    async def run(self) -> None:
        """Reconcile the Secret and the webhook configuration until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._reconciler.run())
            group.create_task(self._injector.run())

    async def ca_bundle(self) -> bytes | None:
        """Return the CA bundle of the Secret, read live; None if it has none."""
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
        log.info("the webhook serves the certificate in %s", self.reference)


class UserProvidedSecret(_SecretSource):
    """Serves the `tls.crt` and `tls.key` of a Secret that the user maintains, and injects its `ca.crt`, if any."""

    async def ca_bundle(self) -> bytes | None:
        secret = await self.reference.find(self._client)
        return self._value(secret, "ca.crt") if secret and "ca.crt" in (secret.data or {}) else None

    async def _reconcile(self) -> datetime | None:
        secret = await self.reference.find(self._client)
        if secret is None:
            raise ConfigError(
                f"{self.reference} does not exist; create it with tls.crt and tls.key, or configure another"
            )
        self._update_serving(KeyPair(self._value(secret, "tls.crt"), self._value(secret, "tls.key")))
        self._injector.enqueue()
        return None

    def _value(self, secret: Secret, key: str) -> bytes:
        try:
            return base64.b64decode((secret.data or {})[key], validate=True)
        except (KeyError, binascii.Error):
            raise ConfigError(f"{self.reference} has no {key}, or it is not base64") from None


class SelfManagedSecret(_SecretSource):
    """Issues certificates for `hosts`, stores them in a Secret, and renews them before they expire."""

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
        self._certificates: CertificateSet | None = None  # as last read or written

    async def ca_bundle(self) -> bytes | None:
        """Return the CA bundle of the Secret, read live; None while the Secret is missing or invalid."""
        certificates = await self._read(await self.reference.find(self._client))
        return certificates.ca_bundle if certificates else None

    async def _reconcile(self) -> datetime | None:
        for _ in range(_MAX_ATTEMPTS):
            secret = await self.reference.find(self._client)
            stored = await self._read(secret)
            # A deleted or broken Secret is written again from memory: API servers still trust that CA.
            current = stored or self._certificates
            rotation = await self._generator.rotate(
                current,
                hosts=self._hosts,
                now=self._clock.now(),
                is_ca_trusted=current is not None and self._injector.is_trusted(current.ca_bundle),
                name=f"{self.reference.name} authority",
            )
            # Serve only what is stored. A certificate that only this replica knows would not be in the bundle that
            # another one injects.
            if rotation.certificates == stored or await self._store(secret, rotation.certificates):
                self._certificates = rotation.certificates
                self._update_serving(rotation.certificates.serving.identity)
                # Also if nothing has changed: the bundle may be missing in the configuration.
                self._injector.enqueue()
                return rotation.requeue_at
        raise ConfigError(f"{self.reference} is changed by another client all the time; see its managedFields")

    async def _read(self, secret: Secret | None) -> CertificateSet | None:
        if secret is None:
            return None
        # Never overwrite a Secret of somebody else that happens to have this name.
        if secret.metadata.labels.get(MANAGED_BY) != MANAGER:
            raise ConfigError(
                f"{self.reference} exists and is not managed by Haulout (it has no "
                f"label {MANAGED_BY}={MANAGER}); configure another for the "
                "certificate of the webhook, or delete it"
            )
        try:
            return await self._generator.read(secret.data or {})
        except ValueError as error:
            log.warning("%s is invalid: %s; writing it again", self.reference, error)
            return None

    async def _store(self, secret: Secret | None, certificates: CertificateSet) -> bool:
        """Write the certificates to the Secret. Return whether that succeeded; if not, another replica was faster."""
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
            "the next certificate, to be served later" if certificates.next else "a certificate",
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
