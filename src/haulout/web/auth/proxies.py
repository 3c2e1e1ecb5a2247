"""A proxy in front says who asks, by headers that anybody could send: so only a proxy that is known is believed.

It is known by where it asks from, which is this very pod unless said otherwise, or by a secret that it shows. From
everybody else these headers are passed over, as if they were not there.
"""

import hmac
import ipaddress
import logging
from collections.abc import Mapping

from multidict import CIMultiDictProxy

from haulout.errors import UsageError
from haulout.web.api.source import Unanswerable
from haulout.web.auth.settings import SECRET_HEADER, ProxySettings, read_secret
from haulout.web.auth.users import User

log = logging.getLogger(__name__)

_RESERVED = "system:"  # such users and groups are of Kubernetes itself: no proxy names them

Headers = CIMultiDictProxy[str]


class Proxies:
    """Believes some."""

    def __init__(self, settings: ProxySettings) -> None:
        self._settings = settings
        self._secret = "" if settings.secret_file is None else read_secret(settings.secret_file)
        self._read_at = self._written_at()

    def user(self, headers: Headers, *, peer: str | None) -> User | None:
        """Return who asks, as a proxy that is believed says; None if none says so. Raises `ValueError` for nonsense."""
        names = headers.getall(self._settings.user_header, [])
        if not names or not self._is_believed(headers, peer):
            return None
        if len(names) > 1:
            raise ValueError(f"found {self._settings.user_header} more than once")
        groups = [it.strip() for text in headers.getall(self._settings.groups_header, []) for it in text.split(",")]
        told = [names[0].strip(), *filter(None, groups)]
        prefix = self._settings.prefix
        for it in told:
            if f"{prefix}{it}".startswith(_RESERVED):
                raise ValueError(f"no proxy names users and groups of Kubernetes itself, such as {it!r:.80}")
        if not told[0]:
            return None
        return User.of(f"{prefix}{told[0]}", groups=[f"{prefix}{it}" for it in told[1:]])

    def passed_on(self, headers: Headers) -> Mapping[str, str]:
        """Return with what a replica tells another who asks; raises `Unanswerable` if that would not believe it."""
        if not self._secret:
            raise Unanswerable(
                "this replica does not lead, and the leader would not believe it who asks: "
                "with more than one, --dashboard-proxy-secret-file is needed"
            )
        groups = ",".join(headers.getall(self._settings.groups_header, []))
        return {
            self._settings.user_header: headers[self._settings.user_header],
            self._settings.groups_header: groups,
            SECRET_HEADER: self._secret,
        }

    def _is_believed(self, headers: Headers, peer: str | None) -> bool:
        if self._settings.secret_file is not None:
            self._look_again()
            shown = headers.get(SECRET_HEADER, "")
            return hmac.compare_digest(shown.encode(errors="replace"), self._secret.encode())
        try:
            address = ipaddress.ip_address((peer or "").partition("%")[0])
        except ValueError:
            return False
        mapped = getattr(address, "ipv4_mapped", None) or address
        return any(mapped in it for it in self._settings.networks)

    def _look_again(self) -> None:
        """Read the secret again, if it was changed."""
        at = self._written_at()
        if self._settings.secret_file is None or at == self._read_at:
            return
        self._read_at = at
        try:
            self._secret = read_secret(self._settings.secret_file)
        except UsageError as error:
            log.warning("the one before still counts: %s", error)

    def _written_at(self) -> int:
        file = self._settings.secret_file
        try:
            return 0 if file is None else file.stat().st_mtime_ns
        except OSError:
            return 0
