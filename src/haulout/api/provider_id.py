"""Which machine of a cloud a node runs on: one key for all the ways to write it.

Clouds, their controllers and Cluster API write the same machine in several ways: `oci://ocid1.instance…` and
`ocid1.instance…`, `aws:///eu-west-1a/i-0abc` and `i-0abc`. Two that mean the same machine have the same key here.
"""

import re

_SCHEME = re.compile(r"(?P<scheme>[a-z0-9][-+.a-z0-9]*)://(?P<rest>.*)", re.IGNORECASE | re.DOTALL)
_LAST_PART_ONLY = ("aws", "openstack")


def machine_key(provider_id: str) -> str:
    """Return what tells one machine from others, of a node's providerID or of a cloud's own name of it."""
    found = _SCHEME.fullmatch(provider_id.strip())
    if found is None:
        return provider_id.strip()
    scheme, rest = found["scheme"].lower(), found["rest"].strip("/")
    if scheme in _LAST_PART_ONLY:
        return rest.rpartition("/")[2]
    if scheme == "azure":
        return f"/{rest}".lower()  # resource ids do not tell upper from lower case
    return rest
