"""How to reach OCI: environment variables, as those of the OCI Node Maintenance Handler, or its ConfigMap `wd`.

    settings = read(os.environ)         # None: nothing is set, and OCI is not listened to
    settings = read(config_map.data)

The handler is documented with WD_STREAM_ID and reads WD_STREAM_OCID: either will do. WD_NAMESPACE is where its CronJobs
are, to be taken over. What else it needed for its jobs is accepted and of no use here; `ignored` names that, for
people. Ours begin with HAULOUT_OCI_.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from haulout.errors import ConfigError
from haulout.notices.sources.addresses import address

_STREAM, _DOCUMENTED_STREAM, _ENDPOINT = "WD_STREAM_OCID", "WD_STREAM_ID", "WD_STREAM_ENDPOINT"
_COMPARTMENTS, _AUTH, _REGION = "HAULOUT_OCI_COMPARTMENTS", "HAULOUT_OCI_AUTH", "HAULOUT_OCI_REGION"
_COMPUTE, _GROUP = "HAULOUT_OCI_COMPUTE_ENDPOINT", "HAULOUT_OCI_GROUP"
_FILE, _PROFILE = "HAULOUT_OCI_CONFIG_FILE", "HAULOUT_OCI_PROFILE"
_HANDLED_IN = "WD_NAMESPACE"
_OF_JOBS = ("WD_NODEPOOL", "WD_TTL_SECONDS_AFTER_FINISHED", "WD_BACKOFF_LIMIT")
VARIABLES = (
    *(_STREAM, _DOCUMENTED_STREAM, _ENDPOINT, _COMPARTMENTS, _AUTH, _REGION, _COMPUTE, _GROUP, _FILE, _PROFILE),
    _HANDLED_IN,
    *_OF_JOBS,
)
TURN_ON = (_STREAM, _COMPARTMENTS)  # without one of them OCI is not listened to
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_OCID = re.compile(r"ocid1\.(?P<kind>[a-z0-9]+)\.[-a-z0-9]+\.[-a-z0-9]*\.(?:[-a-z0-9]*\.)?[-A-Za-z0-9_]+")


class Auth(StrEnum):
    """As whom we call OCI."""

    INSTANCE_PRINCIPAL = "instance-principal"  # as the worker node that this process runs on
    WORKLOAD_IDENTITY = "workload-identity"  # as the service account of the pod
    CONFIG_FILE = "config-file"  # as the OCI CLI does


@dataclass(frozen=True, slots=True, kw_only=True)
class OciSettings:
    """How to reach OCI."""

    stream: str = ""  # empty: there is none, and Compute is asked every few minutes
    endpoint: str = ""  # of the stream's messages
    compartments: tuple[str, ...] = ()  # to look into, besides those that the stream names
    auth: Auth = Auth.INSTANCE_PRINCIPAL
    region: str = ""  # empty: the one that the credentials are for
    compute_endpoint: str = ""  # empty: that of the region
    group: str = "wd-group"
    config_file: str = ""  # empty: ~/.oci/config
    profile: str = ""  # empty: DEFAULT
    handler_namespace: str = ""  # where the handler's CronJobs are; empty: nothing is taken over
    ignored: tuple[str, ...] = ()  # what is set, and of no use


def read(found: Mapping[str, str], *, where: str = "environment") -> OciSettings | None:
    """Return the settings; None if neither a stream nor a compartment is named."""
    stream = _stream(found, where)
    compartments = tuple(_ocids(found, where))
    if not stream and not compartments:
        return None
    endpoint = _url(found, _ENDPOINT, where)
    if stream and not endpoint:
        expected = "expected the Messages endpoint of the stream, such as https://cell-1.streaming.<region>.oci.oraclecloud.com"
        raise ConfigError(f"{expected}, found nothing", file=where, key=_ENDPOINT)
    return OciSettings(
        stream=stream,
        endpoint=endpoint,
        compartments=compartments,
        auth=_auth(found, where),
        region=_value(found, _REGION),
        compute_endpoint=_url(found, _COMPUTE, where),
        group=_value(found, _GROUP) or "wd-group",
        config_file=_value(found, _FILE),
        profile=_value(found, _PROFILE),
        handler_namespace=_namespace(found, where),
        ignored=tuple(_ignored(found)),
    )


def _stream(found: Mapping[str, str], where: str) -> str:
    key = _STREAM if _value(found, _STREAM) else _DOCUMENTED_STREAM
    value = _value(found, key)
    return _checked_ocid(value, "stream", key, where) if value else ""


def _ocids(found: Mapping[str, str], where: str) -> Iterator[str]:
    for value in re.split(r"[\s,]+", _value(found, _COMPARTMENTS)):
        if value:
            # The root compartment is the tenancy.
            yield _checked_ocid(value, ("compartment", "tenancy"), _COMPARTMENTS, where)


def _checked_ocid(value: str, kinds: str | tuple[str, ...], key: str, where: str) -> str:
    shape = _OCID.fullmatch(value)
    kinds = (kinds,) if isinstance(kinds, str) else kinds
    if shape is None or shape["kind"] not in kinds:
        expected = f"expected the OCID of a {kinds[0]}, such as ocid1.{kinds[0]}.oc1…"
        raise ConfigError(f"{expected}, found {value[:80]!r}", file=where, key=key)
    return value


def _namespace(found: Mapping[str, str], where: str) -> str:
    value = _value(found, _HANDLED_IN)
    if value and not _DNS_LABEL.fullmatch(value):
        raise ConfigError(f"expected the name of a namespace, found {value[:80]!r}", file=where, key=_HANDLED_IN)
    return value


def _auth(found: Mapping[str, str], where: str) -> Auth:
    value = _value(found, _AUTH).lower().replace("_", "-")
    try:
        return Auth(value) if value else Auth.INSTANCE_PRINCIPAL
    except ValueError:
        raise ConfigError(f"expected one of {', '.join(Auth)}, found {value!r}", file=where, key=_AUTH) from None


def _url(found: Mapping[str, str], key: str, where: str) -> str:
    return address(_value(found, key), key=key, where=where)


def _ignored(found: Mapping[str, str]) -> Iterator[str]:
    one, other = _value(found, _STREAM), _value(found, _DOCUMENTED_STREAM)
    if one and other and one != other:
        yield f"{_DOCUMENTED_STREAM} differs from {_STREAM}, which counts"
    for key in _OF_JOBS:
        if _value(found, key):
            yield f"{key} is of no use: nodes are drained by the operator itself, not by jobs"


def _value(found: Mapping[str, str], key: str) -> str:
    return found.get(key, "").strip()
