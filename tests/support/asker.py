"""Asks a real API server what `ControlPlane.request` cannot: in other media types, and as somebody else."""

import http.client
import json
import ssl
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from controlplane import ControlPlane


class Asker:
    """An administrator who can take anybody's place; one connection for all requests."""

    def __init__(self, cluster: ControlPlane) -> None:
        tls = ssl.create_default_context(cadata=cluster.ca.decode())
        self._connection = http.client.HTTPSConnection(urlsplit(cluster.server).netloc, context=tls)
        self._headers = {"Authorization": f"Bearer {cluster.token()}", "Content-Type": "application/json"}

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        accept: str = "application/json",
        user: str = "",
        groups: Sequence[str] = (),
    ) -> tuple[int, list[Any]]:
        """Return the status, and the documents of the answer: one, or a watch's events."""
        content = None if body is None else json.dumps(body)
        self._connection.putrequest(method, path)
        headers = [*self._headers.items(), ("Accept", accept), ("Content-Length", str(len(content or "")))]
        if user:
            headers += [("Impersonate-User", user), *(("Impersonate-Group", group) for group in groups)]
        for name, value in headers:
            self._connection.putheader(name, value)
        self._connection.endheaders(content.encode() if content else None)
        response = self._connection.getresponse()
        return response.status, [json.loads(line) for line in response.read().splitlines()]

    def close(self) -> None:
        """Hang up."""
        self._connection.close()
