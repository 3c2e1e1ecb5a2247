"""Users that a proxy authenticates, by headers that only a trusted proxy may set.

A proxy is trusted by its address, by default that of this pod, or by a shared secret. From all other peers the headers
are ignored.
"""

import hmac
import ipaddress
import logging
from collections.abc import Mapping

from multidict import CIMultiDictProxy

from haulout.dashboard.api.backend import HttpError
from haulout.dashboard.auth.settings import SECRET_HEADER, ProxySettings, read_secret
from haulout.errors import UsageError
from haulout.httpserver.delegated_auth import User

log = logging.getLogger(__name__)

_RESERVED = "system:"  # users and groups of Kubernetes itself, which no proxy may name

Headers = CIMultiDictProxy[str]


class TrustedProxy:
    """Reads the user from the headers of a trusted proxy."""

    def __init__(self, settings: ProxySettings) -> None:
        self._settings = settings
        self._secret = "" if settings.secret_file is None else read_secret(settings.secret_file)
        self._loaded_mtime = self._secret_mtime()

    def user(self, headers: Headers, *, peer: str | None) -> User | None:
        """Return the user; None without a trusted proxy or header. Raise `ValueError` for invalid values."""
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
                raise ValueError(f"a proxy must not assert users or groups of Kubernetes itself, such as {value!r:.80}")
        if not identity_names[0]:
            return None
        return User.of(f"{prefix}{identity_names[0]}", groups=[f"{prefix}{value}" for value in identity_names[1:]])

    def forward_headers(self, headers: Headers) -> Mapping[str, str]:
        """Return the headers that carry the user to another replica; raise `HttpError` if it would not trust them."""
        if not self._secret:
            raise HttpError(
                "this replica is not the leader, and cannot prove to the leader who the user is: "
                "with more than one replica, set --dashboard-proxy-secret-file"
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
        """Read the secret again if the file changed."""
        mtime = self._secret_mtime()
        if self._settings.secret_file is None or mtime == self._loaded_mtime:
            return
        self._loaded_mtime = mtime
        try:
            self._secret = read_secret(self._settings.secret_file)
        except UsageError as error:
            log.warning("cannot reload the proxy's secret, so the previous one stays valid: %s", error)

    def _secret_mtime(self) -> int:
        file = self._settings.secret_file
        try:
            return 0 if file is None else file.stat().st_mtime_ns
        except OSError:
            return 0
