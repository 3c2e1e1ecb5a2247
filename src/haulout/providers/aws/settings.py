"""Settings of the AWS event source and of the agent, also from the variables of aws-node-termination-handler.

    settings = read(os.environ)         # None: the source is off
    settings = read_agent_settings(os.environ)

Our own variables begin with HAULOUT_AWS. Of the handler's variables those about the queue, tags and lifecycle actions
are supported. The others are about actions on nodes, which profiles and drain policies define here, or about the
handler's internals: `unsupported` says for each one that is set where to configure it instead.

The handler has a switch for each type of event of the metadata service. The agent does not poll types that are off. All
are on by default: the profile decides what happens for a notice.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from urllib.parse import urlsplit

from haulout.errors import ConfigError
from haulout.providers.aws.imds import ADDRESS
from haulout.providers.aws.instance_events import EventType
from haulout.providers.environment import ENVIRONMENT, bool_variable, duration_variable, parse_endpoint

NETWORK_MAINTENANCE_VARIABLE = "HAULOUT_AWS_DRAIN_FOR_NETWORK_MAINTENANCE"
VARIABLES = (
    "HAULOUT_AWS",
    "HAULOUT_AWS_SECRET",
    "HAULOUT_AWS_LOOK_EVERY",
    NETWORK_MAINTENANCE_VARIABLE,
)  # our own variables
ENABLING_VARIABLES = ("QUEUE_URL", "HAULOUT_AWS_SECRET", "HAULOUT_AWS")  # without one of them the source is off
_FILE = "environment"  # the place that errors name
_SECRET_REFERENCE = re.compile(r"[-a-z0-9]+/[-a-z0-9.]+")
_NTH_TAG = "aws-node-termination-handler/managed"
_NEVER = -1
_DEFAULT_VISIBILITY_TIMEOUT = timedelta(seconds=20)
_DEFAULT_POLL_INTERVAL, _MIN_POLL_INTERVAL = timedelta(minutes=5), timedelta(seconds=30)
_MAX_HEARTBEAT = timedelta(hours=48)  # the limit of Auto Scaling

_DRAIN = "the drain policy sets how pods are evicted"
_PROFILE = "the profile sets what is done for a notice, and when"
_HTTP = "metrics and probes are always served; see haulout run --help"
_EVENTS = "events are always recorded"
_AGENT = "only haulout agent --cloud aws uses it; the operator reads no instance metadata"
_METADATA = "haulout agent --cloud aws reads instance metadata without this setting"
UNSUPPORTED: Mapping[str, str] = {
    "CORDON_ONLY": _PROFILE,
    "COMPLETE_LIFECYCLE_ACTION_DELAY": "use COMPLETE_LIFECYCLE_ACTION_DELAY_SECONDS",
    "DELETE_LOCAL_DATA": _DRAIN,
    "DELETE_SQS_MSG_IF_NODE_NOT_FOUND": "a notice waits until its instance is a node",
    "DRY_RUN": "haulout why NODE shows what would be done",
    "EMIT_KUBERNETES_EVENTS": _EVENTS,
    "ENABLE_ASG_LIFECYCLE_DRAINING": _AGENT,
    "ENABLE_OUT_OF_SERVICE_TAINT": _PROFILE,
    "ENABLE_PROBES_SERVER": _HTTP,
    "ENABLE_PROMETHEUS_SERVER": _HTTP,
    "ENABLE_REBALANCE_DRAINING": _AGENT,
    "ENABLE_REBALANCE_MONITORING": _AGENT,
    "ENABLE_SCHEDULED_EVENT_DRAINING": _AGENT,
    "ENABLE_SPOT_INTERRUPTION_DRAINING": _AGENT,
    "EXCLUDE_FROM_LOAD_BALANCERS": _PROFILE,
    "GRACE_PERIOD": _DRAIN,
    "IGNORE_DAEMON_SETS": _DRAIN,
    "INSTANCE_METADATA_URL": _AGENT,
    "JSON_LOGGING": "see haulout run --help",
    "KUBERNETES_EVENTS_EXTRA_ANNOTATIONS": _EVENTS,
    "KUBE_API_BURST": "requests are few: nothing is polled",
    "KUBE_API_QPS": "requests are few: nothing is polled",
    "LOG_FORMAT_VERSION": "see haulout run --help",
    "LOG_LEVEL": "see haulout run --help",
    "METADATA_TRIES": _METADATA,
    "NODE_TERMINATION_GRACE_PERIOD": _PROFILE,
    "POD_TERMINATION_GRACE_PERIOD": _DRAIN,
    "PROBES_SERVER_ENDPOINT": _HTTP,
    "PROBES_SERVER_PORT": _HTTP,
    "PROMETHEUS_SERVER_PORT": _HTTP,
    "TAINT_EFFECT": _PROFILE,
    "TAINT_NODE": _PROFILE,
    "UPTIME_FROM_FILE": _METADATA,
    "USE_APISERVER_CACHE": "nodes are always read from a cache",
    "USE_PROVIDER_ID": "nodes are always found by their providerID",
    "WEBHOOK_HEADERS": "notifications are plugins of a profile",
    "WEBHOOK_PROXY": "notifications are plugins of a profile",
    "WEBHOOK_TEMPLATE": "notifications are plugins of a profile",
    "WEBHOOK_TEMPLATE_FILE": "notifications are plugins of a profile",
    "WEBHOOK_URL": "notifications are plugins of a profile",
    "WORKERS": "the profile limits how many nodes are in maintenance at once",
}

METADATA_VARIABLE = "HAULOUT_AWS_METADATA"
_ADDRESSES = (METADATA_VARIABLE, "INSTANCE_METADATA_URL")
# A type is on if any of its set variables is true: the handler monitors rebalance recommendations if it should cordon
# for them or drain.
_SWITCHES: Mapping[EventType, tuple[str, ...]] = {
    EventType.SPOT: ("ENABLE_SPOT_INTERRUPTION_DRAINING",),
    EventType.TARGET_LIFECYCLE_STATE: ("ENABLE_ASG_LIFECYCLE_DRAINING",),
    EventType.SCHEDULED_EVENT: ("ENABLE_SCHEDULED_EVENT_DRAINING",),
    EventType.REBALANCE: ("ENABLE_REBALANCE_MONITORING", "ENABLE_REBALANCE_DRAINING"),
}
AGENT_VARIABLES = (METADATA_VARIABLE, NETWORK_MAINTENANCE_VARIABLE)
NTH_VARIABLES = ("INSTANCE_METADATA_URL", *(name for names in _SWITCHES.values() for name in names))


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsSettings:
    """Settings of the AWS event source, which runs in the operator."""

    region: str = ""  # empty: from the cluster, or from boto3's default chain
    endpoint: str = ""
    secret: str = ""  # NAMESPACE/NAME of a Secret with keys; empty: boto3's default chain
    queue_url: str = ""  # empty: only EC2 is polled
    poll_interval: timedelta = _DEFAULT_POLL_INTERVAL
    managed_tag: str = ""  # only instances with this tag are managed; empty: all
    visibility_timeout: timedelta = _DEFAULT_VISIBILITY_TIMEOUT  # received messages stay hidden so long
    heartbeat: timedelta | None = None  # None: derived from the hook's heartbeat timeout
    heartbeat_until: timedelta = _MAX_HEARTBEAT
    complete_after: timedelta = timedelta()
    drains_for_network_maintenance: bool = False  # treat network maintenance as a reboot
    unsupported: Mapping[str, str] = field(
        default_factory=dict
    )  # variables that are set but not supported, and what to use instead


def read(variables: Mapping[str, str]) -> AwsSettings | None:
    """Return the settings; None if the source is off. Raise `ConfigError`."""
    queue = parse_endpoint(variables.get("QUEUE_URL", ""), key="QUEUE_URL")
    secret = variables.get("HAULOUT_AWS_SECRET", "").strip()
    if not queue and not secret and not bool_variable(variables, "HAULOUT_AWS", default=False):
        return None
    if secret and not is_secret_reference(secret):
        raise ConfigError(f"expected NAMESPACE/NAME, found {secret!r:.60}", file=_FILE, key="HAULOUT_AWS_SECRET")
    is_checked = bool_variable(variables, "CHECK_TAG_BEFORE_DRAINING", "CHECK_ASG_TAG_BEFORE_DRAINING", default=True)
    tag = _first_set(variables, "MANAGED_TAG", "MANAGED_ASG_TAG") or _NTH_TAG
    delay = _seconds(variables, "COMPLETE_LIFECYCLE_ACTION_DELAY_SECONDS", minimum=0, maximum=172_800)
    return AwsSettings(
        region=variables.get("AWS_REGION", "") or region_of(queue),
        endpoint=parse_endpoint(variables.get("AWS_ENDPOINT", ""), key="AWS_ENDPOINT"),
        secret=secret,
        queue_url=queue,
        poll_interval=duration_variable(
            variables, "HAULOUT_AWS_LOOK_EVERY", default=_DEFAULT_POLL_INTERVAL, minimum=_MIN_POLL_INTERVAL
        ),
        managed_tag=tag if queue and is_checked else "",
        visibility_timeout=_seconds(variables, "SQS_MSG_VISIBILITY_TIMEOUT_SEC", minimum=1, maximum=119)
        or _DEFAULT_VISIBILITY_TIMEOUT,
        heartbeat=_seconds(variables, "HEARTBEAT_INTERVAL", minimum=30, maximum=3600),
        heartbeat_until=_seconds(variables, "HEARTBEAT_UNTIL", minimum=60, maximum=172_800) or _MAX_HEARTBEAT,
        complete_after=delay or timedelta(),
        drains_for_network_maintenance=bool_variable(variables, NETWORK_MAINTENANCE_VARIABLE, default=False),
        unsupported={name: why for name, why in UNSUPPORTED.items() if name in variables},
    )


def is_secret_reference(secret: str) -> bool:
    """Return whether the text is a valid NAMESPACE/NAME."""
    return _SECRET_REFERENCE.fullmatch(secret) is not None


def region_of(queue_url: str) -> str:
    """Return the region in the URL of a queue; empty if it has none."""
    host = urlsplit(queue_url).hostname or ""
    match host.split("."):
        # The queue's URL has the region in the current and in the legacy form.
        case ["sqs", region, "amazonaws", "com"] | ["sqs", region, "amazonaws", "com", "cn"]:
            return region
        case [region, "queue", "amazonaws", "com"]:
            return region
    return ""


def _first_set(variables: Mapping[str, str], *names: str) -> str:
    return next((variables[name] for name in names if variables.get(name)), "")


def _seconds(variables: Mapping[str, str], name: str, *, minimum: int, maximum: int) -> timedelta | None:
    """Return a number of seconds as a duration; None if it is empty or -1."""
    text = variables.get(name, "").strip()
    try:
        seconds = int(text) if text else _NEVER
    except ValueError:
        seconds = maximum + 1
    if seconds == _NEVER:
        return None
    if not minimum <= seconds <= maximum:
        expected = f"expected a number of seconds from {minimum} to {maximum}, or -1"
        raise ConfigError(f"{expected}, found {text!r:.60}", file=_FILE, key=name)
    return timedelta(seconds=seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """Settings of the agent on an EC2 instance."""

    metadata: str = ADDRESS
    event_types: tuple[EventType, ...] = tuple(_SWITCHES)  # the types to poll
    drains_for_network_maintenance: bool = False  # treat network maintenance as a reboot


def read_agent_settings(environ: Mapping[str, str]) -> AgentSettings:
    """Return the settings; raise `ConfigError`."""
    key = next((variable for variable in _ADDRESSES if environ.get(variable, "").strip()), METADATA_VARIABLE)
    metadata = environ.get(key, "").strip() or ADDRESS
    if not metadata.startswith("http://"):
        raise ConfigError(f"expected an address such as {ADDRESS}, found {metadata[:80]!r}", file=ENVIRONMENT, key=key)
    event_types = tuple(event_type for event_type, names in _SWITCHES.items() if _is_enabled(environ, names))
    if not event_types:
        switches = ", ".join(NTH_VARIABLES[1:])
        raise ConfigError(f"expected some event to listen for, found that {switches} are all off", file=ENVIRONMENT)
    return AgentSettings(
        metadata=parse_endpoint(metadata, key=key),
        event_types=event_types,
        drains_for_network_maintenance=bool_variable(environ, NETWORK_MAINTENANCE_VARIABLE, default=False),
    )


def _is_enabled(environ: Mapping[str, str], names: tuple[str, ...]) -> bool:
    set_names = [name for name in names if environ.get(name, "").strip()]
    return not set_names or any(bool_variable(environ, name, default=True) for name in set_names)
