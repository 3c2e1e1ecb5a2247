"""A certificate and its private key, as a server uses them. `haulout.core.certificate_authority` issues them."""

import ssl
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

LIFETIME = timedelta(days=365)
CLOCK_SKEW = timedelta(minutes=5)  # a certificate is valid this long before now, for clients whose clock is behind


class KeyPair(NamedTuple):
    """A certificate and its private key, both as PEM."""

    certificate: bytes
    key: bytes

    def server_context(self) -> ssl.SSLContext:
        """Return the TLS context of a server. Raise `ssl.SSLError` if the certificate and the key do not match."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        with TemporaryDirectory() as folder:  # readable only by this user; OpenSSL loads keys only from files
            file = Path(folder, "server.pem")
            file.write_bytes(self.key + self.certificate)
            context.load_cert_chain(file, password="")  # prevents OpenSSL from asking for a password on the terminal
        return context
