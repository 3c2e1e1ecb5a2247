"""A certificate with its key, as a server shows it. What makes one is `haulout.core.certificate_authority`."""

import ssl
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

LIFETIME = timedelta(days=365)
CLOCK_SKEW = timedelta(minutes=5)


class KeyPair(NamedTuple):
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes

    def server_context(self) -> ssl.SSLContext:
        """Return what a server needs to show it; `ssl.SSLError` if the two do not fit."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        with TemporaryDirectory() as folder:  # which only we can read; OpenSSL takes keys from files alone
            file = Path(folder, "server.pem")
            file.write_bytes(self.key + self.certificate)
            context.load_cert_chain(file, password="")  # so that OpenSSL does not ask for one on the terminal
        return context
