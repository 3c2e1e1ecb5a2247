"""Credentials for the real OCI SDK, which the simulated OCI accepts."""

from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa


def a_config_file(folder: Path) -> Path:
    """Return a configuration as `oci session authenticate` writes it."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "key.pem").write_bytes(pem)
    (folder / "token").write_text("session-token\n")
    config = folder / "config"
    lines = {
        "region": "eu-frankfurt-1",
        "tenancy": "ocid1.tenancy.oc1..aaaaexample",
        "fingerprint": "20:3b:97:13:55:1c:5b:0d:d3:37:d8:50:4e:c5:3a:34",
        "key_file": str(folder / "key.pem"),
        "security_token_file": str(folder / "token"),
    }
    config.write_text("[DEFAULT]\n" + "".join(f"{key}={value}\n" for key, value in lines.items()))
    config.chmod(0o600)
    (folder / "key.pem").chmod(0o600)
    return config
