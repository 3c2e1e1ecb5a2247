"""Machine keys: one key for all notations of a cloud machine's provider ID.

Clouds, their controllers and Cluster API write the ID of a machine in different ways: `oci://ocid1.instance…` and
`ocid1.instance…`, `aws:///eu-west-1a/i-0abc` and `i-0abc`. Two notations of the same machine have the same key.
"""

import re

_SCHEME = re.compile(r"(?P<scheme>[a-z0-9][-+.a-z0-9]*)://(?P<rest>.*)", re.IGNORECASE | re.DOTALL)
_LAST_PART_ONLY = ("aws", "openstack")


def machine_key(provider_id: str) -> str:
    """Return the key of a machine, from a node's providerID or from the cloud's own ID."""
    found = _SCHEME.fullmatch(provider_id.strip())
    if found is None:
        return provider_id.strip()
    scheme, rest = found["scheme"].lower(), found["rest"].strip("/")
    if scheme in _LAST_PART_ONLY:
        return rest.rpartition("/")[2]
    if scheme == "azure":
        return f"/{rest}".lower()  # Azure resource IDs are case-insensitive
    return rest
