"""Settings of the OCI event source: environment variables, including those of the OCI Node Maintenance Handler.

    settings = read(os.environ)         # None: nothing is set, the source is off
    settings = read(config_map.data)    # the handler's ConfigMap `wd`

The handler's documentation names WD_STREAM_ID, its code reads WD_STREAM_OCID: both are accepted. WD_NAMESPACE is the
namespace of its CronJobs, which are adopted. The handler's variables about its jobs are accepted without effect;
`ignored` lists them for users. Our own variables begin with HAULOUT_OCI_.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from haulout.errors import ConfigError
from haulout.providers.environment import parse_endpoint

_STREAM, _DOCUMENTED_STREAM, _ENDPOINT = "WD_STREAM_OCID", "WD_STREAM_ID", "WD_STREAM_ENDPOINT"
_COMPARTMENTS, _AUTH, _REGION = "HAULOUT_OCI_COMPARTMENTS", "HAULOUT_OCI_AUTH", "HAULOUT_OCI_REGION"
_COMPUTE, _GROUP = "HAULOUT_OCI_COMPUTE_ENDPOINT", "HAULOUT_OCI_GROUP"
_FILE, _PROFILE = "HAULOUT_OCI_CONFIG_FILE", "HAULOUT_OCI_PROFILE"
_HANDLER_NAMESPACE = "WD_NAMESPACE"
_JOB_VARIABLES = ("WD_NODEPOOL", "WD_TTL_SECONDS_AFTER_FINISHED", "WD_BACKOFF_LIMIT")
VARIABLES = (
    *(_STREAM, _DOCUMENTED_STREAM, _ENDPOINT, _COMPARTMENTS, _AUTH, _REGION, _COMPUTE, _GROUP, _FILE, _PROFILE),
    _HANDLER_NAMESPACE,
    *_JOB_VARIABLES,
)
ENABLING_VARIABLES = (_STREAM, _COMPARTMENTS)  # without one of them the source is off
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_OCID = re.compile(r"ocid1\.(?P<kind>[a-z0-9]+)\.[-a-z0-9]+\.[-a-z0-9]*\.(?:[-a-z0-9]*\.)?[-A-Za-z0-9_]+")


class Auth(StrEnum):
    """How the operator authenticates to OCI. The handler knows only the instance principal."""

    INSTANCE_PRINCIPAL = "instance-principal"  # as the worker node of this process
    WORKLOAD_IDENTITY = "workload-identity"  # as the service account of the pod
    CONFIG_FILE = "config-file"  # as the OCI CLI does


@dataclass(frozen=True, slots=True, kw_only=True)
class OciSettings:
    """Settings of the OCI event source. A stream and compartments are both optional, but not together."""

    stream: str = ""  # OCID; empty: no stream, Compute is polled only
    endpoint: str = ""  # the Messages endpoint of the stream
    compartments: tuple[str, ...] = ()  # to poll, in addition to those that the stream names
    auth: Auth = Auth.INSTANCE_PRINCIPAL
    region: str = ""  # empty: that of the credentials
    compute_endpoint: str = ""  # empty: that of the region
    group: str = "wd-group"
    config_file: str = ""  # empty: ~/.oci/config
    profile: str = ""  # empty: DEFAULT
    handler_namespace: str = ""  # namespace of the handler's CronJobs; empty: none are adopted
    ignored: tuple[str, ...] = ()  # messages about variables without effect


def read(variables: Mapping[str, str], *, place_name: str = "environment") -> OciSettings | None:
    """Return the settings; None if neither a stream nor a compartment is set. Raise `ConfigError`."""
    stream = _stream(variables, place_name)
    compartments = tuple(_ocids(variables, place_name))
    if not stream and not compartments:
        return None
    endpoint = _url(variables, _ENDPOINT, place_name)
    if stream and not endpoint:
        expected = "expected the Messages endpoint of the stream, such as https://cell-1.streaming.<region>.oci.oraclecloud.com"
        raise ConfigError(f"{expected}, found nothing", file=place_name, key=_ENDPOINT)
    return OciSettings(
        stream=stream,
        endpoint=endpoint,
        compartments=compartments,
        auth=_auth(variables, place_name),
        region=_value(variables, _REGION),
        compute_endpoint=_url(variables, _COMPUTE, place_name),
        group=_value(variables, _GROUP) or "wd-group",
        config_file=_value(variables, _FILE),
        profile=_value(variables, _PROFILE),
        handler_namespace=_namespace(variables, place_name),
        ignored=tuple(_ignored(variables)),
    )


def _stream(variables: Mapping[str, str], place_name: str) -> str:
    key = _STREAM if _value(variables, _STREAM) else _DOCUMENTED_STREAM
    value = _value(variables, key)
    return _checked_ocid(value, "stream", key, place_name) if value else ""


def _ocids(variables: Mapping[str, str], place_name: str) -> Iterator[str]:
    for value in re.split(r"[\s,]+", _value(variables, _COMPARTMENTS)):
        if value:
            # The root compartment is the tenancy.
            yield _checked_ocid(value, ("compartment", "tenancy"), _COMPARTMENTS, place_name)


def _checked_ocid(value: str, kinds: str | tuple[str, ...], key: str, place_name: str) -> str:
    match = _OCID.fullmatch(value)
    kinds = (kinds,) if isinstance(kinds, str) else kinds
    if match is None or match["kind"] not in kinds:
        expected = f"expected the OCID of a {kinds[0]}, such as ocid1.{kinds[0]}.oc1…"
        raise ConfigError(f"{expected}, found {value[:80]!r}", file=place_name, key=key)
    return value


def _namespace(variables: Mapping[str, str], place_name: str) -> str:
    value = _value(variables, _HANDLER_NAMESPACE)
    if value and not _DNS_LABEL.fullmatch(value):
        raise ConfigError(
            f"expected the name of a namespace, found {value[:80]!r}", file=place_name, key=_HANDLER_NAMESPACE
        )
    return value


def _auth(variables: Mapping[str, str], place_name: str) -> Auth:
    value = _value(variables, _AUTH).lower().replace("_", "-")
    try:
        return Auth(value) if value else Auth.INSTANCE_PRINCIPAL
    except ValueError:
        raise ConfigError(f"expected one of {', '.join(Auth)}, found {value!r}", file=place_name, key=_AUTH) from None


def _url(variables: Mapping[str, str], key: str, place_name: str) -> str:
    return parse_endpoint(_value(variables, key), key=key, where=place_name)


def _ignored(variables: Mapping[str, str]) -> Iterator[str]:
    one, other = _value(variables, _STREAM), _value(variables, _DOCUMENTED_STREAM)
    if one and other and one != other:
        yield f"{_DOCUMENTED_STREAM} differs from {_STREAM}, which is used"
    for key in _JOB_VARIABLES:
        if _value(variables, key):
            yield f"{key} has no effect: the operator drains nodes itself, without Jobs"


def _value(variables: Mapping[str, str], key: str) -> str:
    return variables.get(key, "").strip()
