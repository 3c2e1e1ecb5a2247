"""Client certificates of webhook callers: the proof that a caller is the API server.

The API server presents a certificate to webhooks only if its administrator configured one (`AdmissionConfiguration`).
The CAs that verify it are in the ConfigMap `extension-apiserver-authentication`, which every API server writes for
extension API servers: the client CA, and the CA of the request-header proxy with its allowed names. A certificate is
the API server's if one of these CAs signed it, and its common name is among the allowed or the configured names. A CA
alone proves nothing: it also signs the certificates of users and kubelets.

`optional` requests a certificate and also serves callers without one; `required` refuses those. New connections use
rotated CAs at once. The server's own certificate is that of `ServingCertificate`.
"""

import json
import logging
import ssl
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from haulout.api.objects import Object, object_key
from haulout.api.resources import Resource
from haulout.core.clock import Clock
from haulout.core.key_pair import KeyPair
from haulout.errors import ConfigError, NotFound
from haulout.httpserver.serving_certificate import ServingCertificate, swappable_context
from haulout.kube.client import Client
from haulout.webhook.object_reconciler import ObjectReconciler
from haulout.webhook.registration import AUTHENTICATION_CONFIG_MAP as NAME
from haulout.webhook.registration import AUTHENTICATION_NAMESPACE as NAMESPACE
from haulout.webhook.settings import ClientAuth

log = logging.getLogger(__name__)

_AUTHORITIES = ("client-ca-file", "requestheader-client-ca-file")
_NAMES = "requestheader-allowed-names"


class _ConfigMap(Object, frozen=True):
    data: dict[str, str] | None = None


_CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True, model=_ConfigMap)


@dataclass(frozen=True, slots=True)
class _Trust:
    """The CAs and common names that identify the API server."""

    authorities: str = ""  # PEM
    names: frozenset[str] = frozenset()

    @classmethod
    def of(cls, data: Mapping[str, str]) -> "_Trust":
        """Parse the data of the ConfigMap; raise `ValueError`."""
        names = json.loads(data.get(_NAMES) or "[]")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError(f"{_NAMES}: expected a list of names in JSON, found {data[_NAMES]!r:.100}")
        trust = cls("\n".join(data[key] for key in _AUTHORITIES if data.get(key)), frozenset(names))
        if trust.authorities:
            trust.add_to(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ClientAuth.OPTIONAL)
        return trust

    def add_to(self, context: ssl.SSLContext, mode: ClientAuth) -> None:
        """Make a context verify client certificates; raise `ssl.SSLError` if the CAs are not valid PEM."""
        context.load_verify_locations(cadata=self.authorities)
        context.verify_mode = ssl.CERT_REQUIRED if mode is ClientAuth.REQUIRED else ssl.CERT_OPTIONAL


class ClientCertificates:
    """Verifies client certificates while `run` runs; `names` are common names beyond those of the ConfigMap."""

    def __init__(
        self,
        client: Client,
        serving_certificate: ServingCertificate,
        *,
        mode: ClientAuth,
        names: Iterable[str] = (),
        clock: Clock,
    ) -> None:
        self.mode = mode
        self.context = swappable_context(self._current_context)
        self._client = client
        self._serving_certificate = serving_certificate
        self._names = frozenset(names)
        self._trust = _Trust()
        self._cached_context: tuple[KeyPair, _Trust, ssl.SSLContext] | None = None
        self._reconciler = ObjectReconciler(
            client, _CONFIG_MAPS, NAME, namespace=NAMESPACE, reconcile=self._reconcile, clock=clock
        )

    @property
    def problem(self) -> str | None:
        """Why no caller can be verified although the mode requires it."""
        if self.mode is not ClientAuth.REQUIRED or self._trust.authorities:
            return None
        why = self._reconciler.problem or f"{_config_map_key()} contains no CA certificates"
        return f"client certificates are required and cannot be verified: {why}"

    async def run(self) -> None:
        """Watch the CAs until cancelled. Return at once if client certificates are off."""
        if self.mode is not ClientAuth.OFF:
            await self._reconciler.run()

    def is_api_server(self, certificate: Mapping[str, Any] | None) -> bool:
        """Return whether a verified certificate, as `ssl.SSLSocket.getpeercert` returns it, is the API server's.

        A missing or unverified certificate is empty or None.
        """
        subject: Sequence[Sequence[tuple[str, str]]] = (certificate or {}).get("subject", ())
        common_names = {value for part in subject for key, value in part if key == "commonName"}
        # A certificate with several common names could carry an allowed one beside that of a user.
        return len(common_names) == 1 and common_names <= (self._trust.names | self._names)

    async def _reconcile(self) -> datetime | None:
        try:
            found = await self._client.get(_CONFIG_MAPS, NAME, namespace=NAMESPACE)
            trust = _Trust.of(found.data or {})
        except NotFound:
            trust = _Trust()
        except (ValueError, ssl.SSLError) as error:
            raise ConfigError(f"{_config_map_key()}: {error}") from None
        if trust != self._trust:
            log.info("callers of the webhook are verified with the CAs in %s", _config_map_key())
            self._trust = trust
            # OpenSSL takes verify_mode from the context that a connection begins with, and all else from its current
            # one.
            self.context.verify_mode = self._verify_mode(trust)
        return None

    def _verify_mode(self, trust: _Trust) -> ssl.VerifyMode:
        if self.mode is ClientAuth.REQUIRED:
            return ssl.CERT_REQUIRED
        return ssl.CERT_OPTIONAL if trust.authorities else ssl.CERT_NONE

    def _current_context(self) -> ssl.SSLContext | None:
        """Return the context for a new connection; None: refuse it."""
        identity, trust = self._serving_certificate.identity, self._trust
        # With `required` and no CA, nobody can be verified: refuse instead of serving everybody.
        if identity is None or self.problem:
            return None
        if self._cached_context is None or self._cached_context[:2] != (identity, trust):
            context = identity.server_context()
            if trust.authorities:
                trust.add_to(context, self.mode)
            self._cached_context = identity, trust, context
        return self._cached_context[2]


def _config_map_key() -> str:
    return f"ConfigMap {object_key(NAME, NAMESPACE)}"
