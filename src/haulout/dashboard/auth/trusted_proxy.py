"""A proxy in front says who asks, by headers that anybody could send: so only a proxy that is known is believed.

It is known by where it asks from, which is this very pod unless said otherwise, or by a secret that it shows. From
everybody else these headers are passed over, as if they were not there.
"""

import hmac
import ipaddress
import logging
from collections.abc import Mapping

from multidict import CIMultiDictProxy

from haulout.dashboard.api.backend import HttpError
from haulout.dashboard.auth.settings import SECRET_HEADER, ProxySettings, read_secret
from haulout.errors import UsageError
from haulout.httpserver.user import User

log = logging.getLogger(__name__)

_RESERVED = "system:"  # such users and groups are of Kubernetes itself: no proxy names them

Headers = CIMultiDictProxy[str]


class TrustedProxy:
    """Believes some."""

    def __init__(self, settings: ProxySettings) -> None:
        self._settings = settings
        self._secret = "" if settings.secret_file is None else read_secret(settings.secret_file)
        self._loaded_mtime = self._secret_mtime()

    def user(self, headers: Headers, *, peer: str | None) -> User | None:
        """Return who asks, as a proxy that is believed says; None if none says so. Raises `ValueError` for nonsense."""
        names = headers.getall(self._settings.user_header, [])
        if not names or not self._is_trusted(headers, peer):
            return None
        if len(names) > 1:
            raise ValueError(f"found {self._settings.user_header} more than once")
        groups = [
            value.strip() for text in headers.getall(self._settings.groups_header, []) for value in text.split(",")
        ]
        identity_names = [names[0].strip(), *filter(None, groups)]
        prefix = self._settings.prefix
        for value in identity_names:
            if f"{prefix}{value}".startswith(_RESERVED):
                raise ValueError(f"no proxy names users and groups of Kubernetes itself, such as {value!r:.80}")
        if not identity_names[0]:
            return None
        return User.of(f"{prefix}{identity_names[0]}", groups=[f"{prefix}{value}" for value in identity_names[1:]])

    def forward_headers(self, headers: Headers) -> Mapping[str, str]:
        """Return with what a replica tells another who asks; raises `HttpError` if that would not believe it."""
        if not self._secret:
            raise HttpError(
                "this replica does not lead, and the leader would not believe it who asks: "
                "with more than one, --dashboard-proxy-secret-file is needed"
            )
        groups = ",".join(headers.getall(self._settings.groups_header, []))
        return {
            self._settings.user_header: headers[self._settings.user_header],
            self._settings.groups_header: groups,
            SECRET_HEADER: self._secret,
        }

    def _is_trusted(self, headers: Headers, peer: str | None) -> bool:
        if self._settings.secret_file is not None:
            self._reload_secret()
            sent = headers.get(SECRET_HEADER, "")
            return hmac.compare_digest(sent.encode(errors="replace"), self._secret.encode())
        try:
            address = ipaddress.ip_address((peer or "").partition("%")[0])
        except ValueError:
            return False
        mapped = getattr(address, "ipv4_mapped", None) or address
        return any(mapped in network for network in self._settings.networks)

    def _reload_secret(self) -> None:
        """Read the secret again, if it was changed."""
        mtime = self._secret_mtime()
        if self._settings.secret_file is None or mtime == self._loaded_mtime:
            return
        self._loaded_mtime = mtime
        try:
            self._secret = read_secret(self._settings.secret_file)
        except UsageError as error:
            log.warning("the one before still counts: %s", error)

    def _secret_mtime(self) -> int:
        file = self._settings.secret_file
        try:
            return 0 if file is None else file.stat().st_mtime_ns
        except OSError:
            return 0
