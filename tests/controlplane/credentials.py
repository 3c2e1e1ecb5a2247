"""Users of a control plane and their credentials.

A few users have tokens, fixed at the start because the server reads them once. Any other user authenticates with a
client certificate, created on demand. In both cases the result is a kubeconfig, which people and programs use.
"""

import base64
import hashlib
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from controlplane.server_process import ControlPlaneError
from haulout.core.certificate_authority import CertificateAuthority
from haulout.core.key_pair import KeyPair

ADMIN = "admin"


class Credentials:
    """The authorities and tokens of one control plane; `users` maps each user with a token to the user's groups."""

    def __init__(self, users: Mapping[str, Sequence[str]]) -> None:
        self._users = {**users, ADMIN: ("system:masters",)}
        self._tokens = {user: secrets.token_hex(16) for user in self._users}
        self._servers = CertificateAuthority("haulout test servers")
        self._clients = CertificateAuthority("haulout test clients")

    @property
    def server_ca(self) -> bytes:
        """The certificate, PEM, that vouches for every server."""
        return self._servers.certificate

    def token(self, user: str) -> str:
        """Return the bearer token of `user`."""
        try:
            return self._tokens[user]
        except KeyError:
            known = ", ".join(self._tokens)
            raise ControlPlaneError(f"no token for user {user}, only for {known}: give groups to sign in") from None

    def client_certificate(self, user: str, groups: Sequence[str]) -> KeyPair:
        """Return a certificate and key that the server takes for `user` with `groups`, which are organizations."""
        organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, user), *organizations])
        return self._clients.issue(name, usages=[ExtendedKeyUsageOID.CLIENT_AUTH])

    def write_server_files(self, folder: Path) -> None:
        """Write what the servers read, under the names that `controlplane.flags` uses."""
        server = self._servers.issue_server("127.0.0.1", "localhost")
        files = {
            "server-ca.pem": self._servers.certificate,
            "server.pem": server.certificate,
            "server-key.pem": server.key,
            "client-ca.pem": self._clients.certificate,
            "service-accounts-key.pem": _signing_key(),
            "tokens.csv": "".join(self._token_lines()).encode(),
        }
        for name, content in files.items():
            _write_private(folder / name, content)

    def kubeconfig(self, folder: Path, *, server: str, user: str, groups: Sequence[str] | None, namespace: str) -> Path:
        """Write a kubeconfig into `folder`, or find it there; with `groups` it holds a client certificate."""
        digest = hashlib.sha256(repr((user, groups and tuple(groups), namespace)).encode()).hexdigest()
        path = folder / f"{quote(user, safe='')[:60]}-{digest[:8]}.yaml"
        if not path.exists():
            sign_in = {"token": self.token(user)} if groups is None else self._certificate_data(user, groups)
            content = {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [
                    {
                        "name": "haulout-test",
                        "cluster": {"server": server, "certificate-authority-data": _base64(self.server_ca)},
                    }
                ],
                "users": [{"name": user, "user": sign_in}],
                "contexts": [
                    {
                        "name": "haulout-test",
                        "context": {"cluster": "haulout-test", "user": user, "namespace": namespace},
                    }
                ],
                "current-context": "haulout-test",
            }
            _write_private(path, yaml.safe_dump(content, sort_keys=False).encode())
        return path

    def _token_lines(self) -> list[str]:
        return [f'{token},{user},{user},"{",".join(self._users[user])}"\n' for user, token in self._tokens.items()]

    def _certificate_data(self, user: str, groups: Sequence[str]) -> dict[str, str]:
        identity = self.client_certificate(user, groups)
        return {
            "client-certificate-data": _base64(identity.certificate),
            "client-key-data": _base64(identity.key),
        }


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _write_private(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)


def _signing_key() -> bytes:
    """Return a new private key as PEM, with which the API server signs service account tokens."""
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
