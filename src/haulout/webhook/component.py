"""The webhook as one component: certificate, server and health.

    webhook = Webhook(client, WebhookSettings(namespace="haulout"))  # haulout.webhook.settings
    async with asyncio.TaskGroup() as group:
        group.create_task(webhook.serve(client))

Every replica runs one, leader or not, because the API server may call any of them. Therefore `client` must not be one
that only lets the leader write. The webhook does not listen before it has a certificate.
"""

import asyncio
import logging
from collections.abc import Iterator
from typing import Protocol

from haulout.core.clock import Clock
from haulout.core.metrics import MetricVec
from haulout.httpserver.serving_certificate import OLM, CertificateFiles, CertificateWatcher, ServingCertificate
from haulout.kube.client import Client
from haulout.runtime.component import Component
from haulout.webhook import registration
from haulout.webhook.ca_bundle_injection import WebhookReference
from haulout.webhook.certificate_secret import SecretReference, SelfManagedSecret, UserProvidedSecret
from haulout.webhook.client_certificates import ClientCertificates
from haulout.webhook.server import WebhookServer
from haulout.webhook.settings import (
    DEFAULT_FOLDER,
    CertificateFolder,
    CertificateSource,
    SelfSigned,
    UserSecret,
    WebhookSettings,
)
from haulout.webhook.validator import REVIEWS, Validator

log = logging.getLogger(__name__)


class _CertificateProvider(Protocol):
    """The source of the serving certificate: mounted files, or a Secret."""

    @property
    def problem(self) -> str | None:
        """Why there is no certificate, or no newer one."""
        ...

    @property
    def trust_problem(self) -> str | None:
        """Why API servers may not trust the certificate."""
        ...

    async def run(self) -> None:
        """Keep the serving certificate up to date until cancelled."""
        ...


class Webhook(Component):
    """Serves while `serve` runs. `clock` decides whether certificates are valid; the default is the client's."""

    title = "webhook"
    metrics = (REVIEWS,)

    def __init__(self, client: Client, settings: WebhookSettings, *, clock: Clock | None = None) -> None:
        super().__init__()
        self.port: int | None = None  # while it listens
        self.serving_certificate = ServingCertificate()
        self.validator = Validator(client, guard_quorum=settings.guard_quorum)
        self.clients = ClientCertificates(
            client,
            self.serving_certificate,
            mode=settings.client_auth,
            names=settings.client_names,
            clock=clock or client.clock,
        )
        self._settings = settings
        self._provider = _certificate_provider(client, settings, self.serving_certificate, clock or client.clock)

    async def serve(self, client: Client) -> None:
        """Serve until cancelled. It does not listen before there is a certificate."""
        del client  # it has been given one
        async with asyncio.TaskGroup() as group:
            group.create_task(self._provider.run())
            group.create_task(self.clients.run())
            # Without one, each handshake fails. A pod that does not listen is not ready, and gets no requests.
            await self.serving_certificate.wait()
            server = WebhookServer(self.validator, self.clients, path=registration.PATH)
            async with server.serve(host=self._settings.host, port=self._settings.port) as port:
                log.info("the webhook listens on port %d", port)
                self.port = port
                try:
                    await asyncio.Event().wait()
                finally:
                    self.port = None

    def unready(self) -> Iterator[str]:
        """Yield why no review can be answered."""
        if self.port is None:
            yield f"the webhook does not listen: {self._provider.problem or 'it has no certificate yet'}"
        elif problem := self.clients.problem:
            yield f"the webhook refuses all callers: {problem}"

    def problems(self) -> Iterator[str]:
        """Yield what needs attention although reviews are answered."""
        yield from filter(None, (self._provider.problem, self._provider.trust_problem))

    def status_lines(self) -> Iterator[str]:
        problem = next(self.unready(), "")
        yield f"[-] webhook: {problem}" if problem else "[+] webhook: listening"

    def collect_metrics(self) -> Iterator[MetricVec]:
        yield self.validator.reviews


def _certificate_provider(
    client: Client, settings: WebhookSettings, serving_certificate: ServingCertificate, clock: Clock
) -> _CertificateProvider:
    chosen = _resolve_source(settings.certificate)
    if isinstance(chosen, CertificateFiles):
        return CertificateWatcher(chosen, serving_certificate, clock=clock)
    secret = SecretReference(settings.namespace, chosen.secret if isinstance(chosen, SelfSigned) else chosen.name)
    reference = WebhookReference(settings.configuration, registration.WEBHOOK)
    if isinstance(chosen, UserSecret):
        return UserProvidedSecret(client, secret, serving_certificate, registration=reference, clock=clock)
    hosts = (*registration.service_hosts(settings.service, namespace=settings.namespace), *settings.more_hosts)
    return SelfManagedSecret(
        client,
        secret,
        serving_certificate,
        hosts=hosts,
        registration=reference,
        clock=clock,
        generator=settings.certificate_generator,
    )


def _resolve_source(source: CertificateSource) -> CertificateFiles | UserSecret | SelfSigned:
    match source:
        case CertificateFolder(path):
            return CertificateFiles.in_folder(path)
        case UserSecret() | SelfSigned():
            return source
    if OLM.exist():
        return OLM
    log.info("OLM injected certs for webhooks not found")
    default = CertificateFiles.in_folder(DEFAULT_FOLDER)
    return default if default.exist() else SelfSigned()
