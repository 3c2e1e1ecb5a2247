"""The webhook in one piece: its certificate, its server, and how it is doing.

    webhook = Webhook(client, WebhookSettings(namespace="haulout"))     # of `haulout.web.wishes`
    async with asyncio.TaskGroup() as group:
        group.create_task(webhook.run())

Every replica runs one, leader or not: the API server asks any of them. So `client` must not be one whose writes are
kept for the leader. A certificate is all that is waited for; without one there is no listening.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from haulout.core.clock import Clock
from haulout.kube.client import Client
from haulout.web import registration
from haulout.web.client_certificates import ClientCertificates
from haulout.web.folders import OLM, Files, FolderSource
from haulout.web.injection import Registration
from haulout.web.presented import Presented
from haulout.web.secrets import GivenSecret, OwnSecret, Place
from haulout.web.server import WebhookServer
from haulout.web.validator import Validator
from haulout.web.wishes import DEFAULT_FOLDER, CertificateFrom, Folder, SelfMade, UserSecret, WebhookSettings

log = logging.getLogger(__name__)


class _Source(Protocol):
    """Where a certificate comes from."""

    @property
    def problem(self) -> str | None:
        """Why there is no certificate, or no newer one."""
        ...

    @property
    def trouble(self) -> str | None:
        """Why API servers may not trust it."""
        ...

    async def run(self) -> None:
        """Show what there is until cancelled."""
        ...


class Webhook:
    """Serves while `run` runs. Certificates are valid by `clock`, by default the client's."""

    def __init__(self, client: Client, settings: WebhookSettings, *, clock: Clock | None = None) -> None:
        self.port: int | None = None  # while it listens
        self.presented = Presented()
        self.validator = Validator(client, guard_quorum=settings.guard_quorum)
        self.clients = ClientCertificates(
            client,
            self.presented,
            mode=settings.client_auth,
            names=settings.client_names,
            clock=clock or client.clock,
        )
        self._settings = settings
        self._source = _source(client, settings, self.presented, clock or client.clock)

    async def run(self) -> None:
        """Serve until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._source.run())
            group.create_task(self.clients.run())
            await self.presented.wait()
            server = WebhookServer(self.validator, self.clients, path=registration.PATH)
            async with server.serving(host=self._settings.host, port=self._settings.port) as port:
                log.info("the webhook listens on port %d", port)
                self.port = port
                try:
                    await asyncio.Event().wait()
                finally:
                    self.port = None

    def unready(self) -> Sequence[str]:
        """Return why no review can be answered, for a readiness check."""
        if self.port is None:
            return (f"the webhook does not listen: {self._source.problem or 'it has no certificate yet'}",)
        problem = self.clients.problem
        return (f"the webhook refuses all callers: {problem}",) if problem else ()

    def troubles(self) -> Sequence[str]:
        """Return what somebody should look after, though reviews are answered."""
        return tuple(it for it in (self._source.problem, self._source.trouble) if it)


def _source(client: Client, settings: WebhookSettings, presented: Presented, clock: Clock) -> _Source:
    chosen = _chosen(settings.certificate)
    if isinstance(chosen, Files):
        return FolderSource(chosen, presented, clock=clock)
    place = Place(settings.namespace, chosen.secret if isinstance(chosen, SelfMade) else chosen.name)
    known_as = Registration(settings.configuration, registration.WEBHOOK)
    if isinstance(chosen, UserSecret):
        return GivenSecret(client, place, presented, registration=known_as, clock=clock)
    hosts = (*registration.service_hosts(settings.service, namespace=settings.namespace), *settings.more_hosts)
    return OwnSecret(client, place, presented, hosts=hosts, registration=known_as, clock=clock, smith=settings.smith)


def _chosen(source: CertificateFrom) -> Files | UserSecret | SelfMade:
    match source:
        case Folder(path):
            return Files.in_folder(path)
        case UserSecret() | SelfMade():
            return source
    if OLM.exist():
        return OLM
    log.info("OLM injected certs for webhooks not found")
    default = Files.in_folder(DEFAULT_FOLDER)
    return default if default.exist() else SelfMade()
