"""Decisions for any valid configuration and any node: none raises, and all satisfy some invariants."""

import json
import math
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from haulout.api.objects import Node
from haulout.api.workloads import EvictedWorkload
from haulout.controllers.profiles.config.model import Configuration
from haulout.controllers.profiles.decision import decide
from haulout.controllers.profiles.machine import data_annotation
from haulout.controllers.profiles.machine.transitions import PENDING_ANNOTATION, encode_pending, read_pending
from haulout.controllers.profiles.observation import Decision, DrainStatus, Observation
from haulout.controllers.profiles.plugin import (
    DATA_ANNOTATION,
    PROFILE_LABEL,
    STATE_LABEL,
    ExternalQuery,
    ObservedNode,
    QueryResult,
    State,
)
from haulout.controllers.profiles.plugins.checks.kubernikus_count import PoolSizesQuery
from haulout.controllers.profiles.plugins.checks.prometheus_instant import InstantQueryResult as Samples
from haulout.controllers.profiles.plugins.checks.time_window import CalendarFileQuery
from haulout.controllers.profiles.plugins.registry import registries
from haulout.core.timestamps import add_saturating
from haulout.errors import ConfigErrors
from support.builders.objects import a_node, a_pod
from support.fakes.cluster_view import NOW, FakeClusterView, a_lease
from support.fakes.profile_node import load_configuration

KEYS = ("pool", "version", "zone", STATE_LABEL, "ready")
VALUES = ("", "true", "1.2.3", "v1", "eu-1", "99999999999999999999.0.0", "--", "\u2028\ud7ff")
STATES = tuple(map(str, State))
NAMES = ("a", "b", "c", "d")
PROFILES = ("os", "gpu", "default")

keys, values = st.sampled_from(KEYS), st.sampled_from(VALUES)
durations = st.sampled_from(("0s", "1s", "10m", "24h", "-1h", "87600h", "2562047h", "1ns"))
numbers = st.one_of(st.integers(min_value=-1, max_value=3), st.just(2**31))


def _config(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(fields)


CHECKS = {
    "hasLabel": _config(key=keys, value=values),
    "hasAnnotation": _config(key=keys, value=values),
    "anyLabel": _config(key=keys, value=values),
    "condition": _config(type=st.sampled_from(("Ready", "DiskPressure")), status=st.sampled_from(("True", "Unknown"))),
    "nodeCount": _config(count=numbers),
    "clusterSemver": _config(key=keys, profileScoped=st.booleans()),
    "timeWindow": _config(
        start=st.just("10:00"), end=st.sampled_from(("12:00", "9:00", "10:00")), weekdays=st.just(["mon", "wed"]),
        timezone=st.sampled_from(("UTC", "Europe/Berlin", "Pacific/Apia")), exclude=st.sampled_from(([], ["Feb 29"])),
        acrossMidnight=st.booleans(), calendars=st.sampled_from(([], [], ["nowhere.ics"])),
        blackouts=st.sampled_from(([], [{"start": "0001-01-01", "end": "9999-12-31"}])),
    ),
    "wait": _config(duration=durations),
    "waitExclude": _config(duration=durations, exclude=st.just(["wed"])),
    "stagger": _config(duration=durations, leaseName=st.just("turn"), leaseNamespace=st.just("x"), parallel=numbers),
    "maxMaintenance": _config(
        max=st.sampled_from((1, 2, -1, "50%")), profile=st.sampled_from(PROFILES), groupBy=st.just(["zone"]),
        skipAfter=durations,
    ),
    "affinity": _config(minOperational=numbers),
    "prometheusInstant": _config(
        url=st.just("http://p/"), query=st.just("up"), expr=st.sampled_from(("value > 1", "1/value"))
    ),
    "checkHypervisor": _config(evicted=st.booleans()),
    "hypervisorCondition": _config(type=st.just("Ready"), status=st.just("True")),
    "kubernikusCount": _config(cluster=st.just("k")),
    "recovered": _config(readyFor=durations, daemonSets=st.booleans(), workloads=st.booleans()),
    "capacity": _config(),
    "notice": _config(
        when=st.sampled_from(("due", "active", "over")), leadTime=durations, kinds=st.just(["Reboot", "Freeze"])
    ),
}  # fmt: skip
TRIGGERS = {
    "alterLabel": _config(key=st.sampled_from((*KEYS, PROFILE_LABEL)), value=values, remove=st.booleans()),
    "alterAnnotation": _config(key=st.sampled_from((*KEYS, DATA_ANNOTATION)), value=values, remove=st.booleans()),
    "alterFinalizer": _config(key=st.just("example.com/f"), remove=st.booleans()),
    "alterHypervisor": _config(reboot=st.booleans()),
    "awaitRecovery": _config(timeout=durations),
    "replaceMachine": _config(required=st.booleans(), surge=st.booleans()),
    "eviction": _config(
        action=st.sampled_from(("cordon", "uncordon", "drain")), forceEviction=st.booleans(), evictionTimeout=durations
    ),
}
SCHEDULES = {
    "periodic": _config(interval=durations),
    "oneshot": _config(delay=durations),
    "scheduled": _config(instant=st.just("9:00"), weekdays=st.just(["wed"])),
}


def _instance(name: str, kinds: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    made = [st.fixed_dictionaries({"type": st.just(kind), "config": config}) for kind, config in kinds.items()]
    return st.one_of(made).map(lambda item: {"name": name, **item})


def _notification(name: str) -> st.SearchStrategy[dict[str, Any]]:
    fixed = {"name": name, "type": "webhook", "config": {"url": "https://example.com/"}}
    schedules = [st.fixed_dictionaries({"type": st.just(item), "config": config}) for item, config in SCHEDULES.items()]
    return st.one_of(schedules).map(lambda item: {**fixed, "schedule": item})


chains = st.sampled_from(("a", "b", "a && b", "b && a"))
expressions = st.sampled_from(("a", "b", "c", "a && b", "a || !b", "!(a || b) && c", "d && !d", "a && b && c && d"))
transitions = st.fixed_dictionaries(
    {"check": expressions, "next": st.sampled_from(STATES)}, optional={"trigger": chains}
)
states = st.fixed_dictionaries(
    {"transitions": st.lists(transitions, min_size=1, max_size=3)}, optional={"enter": chains, "notify": chains}
)
profiles = st.tuples(
    *(st.fixed_dictionaries({"name": st.just(name), **dict.fromkeys(STATES, states)}) for name in PROFILES[:2])
)


@st.composite
def configurations(draw: st.DrawFn) -> Configuration | None:
    """Return a configuration, if the drawn one is valid."""
    file = {
        "intervals": {"requeue": draw(st.sampled_from(("30s", "10m")))},
        "instances": {
            "check": [draw(_instance(name, CHECKS)) for name in NAMES],
            "notify": [draw(_notification(name)) for name in NAMES[:2]],
            "trigger": [draw(_instance(name, TRIGGERS)) for name in NAMES[:2]],
        },
        "profiles": list(draw(profiles)),
    }
    try:
        return load_configuration(yaml.safe_dump(file))
    except ConfigErrors:
        return None


instants = st.sampled_from(
    (
        None,
        "0001-01-01T00:00:00Z",
        "2024-05-01T09:59:59.123456789Z",
        "9999-12-31T23:59:59Z",
        "2024-05-01T10:00:00+02:00",
    )
)


@st.composite
def annotations(draw: st.DrawFn) -> str:
    """Return any valid data annotation."""
    entries = st.fixed_dictionaries(
        {},
        optional={
            "Transition": instants,
            "Current": st.sampled_from((*STATES, *STATES, "gone")),
            "Previous": st.sampled_from(STATES),
        },
    )
    found = draw(st.dictionaries(st.sampled_from((*PROFILES, "old")), entries))
    return json.dumps({"Profiles": found, "Notifications": draw(st.dictionaries(st.sampled_from(NAMES[:2]), instants))})


texts = st.text(max_size=8) | values
conditions = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(("Ready", "DiskPressure", "")),
        "status": st.sampled_from(("True", "Unknown", "")),
        "lastTransitionTime": st.sampled_from(("2024-05-01T09:59:59Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z")),
    },
)


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Any:
    """Return a node with any labels and annotations, or without usual fields."""
    label = draw(st.sampled_from(("os", "os--gpu", "gpu--os", None, "", "gpu--nobody--os--os", "--", "default--os")))
    known = {} if label is None else {PROFILE_LABEL: label}
    node = a_node(name).annotated({**draw(st.dictionaries(keys | st.text(max_size=8), texts, max_size=3))})
    node["metadata"] |= {"uid": f"uid-{name}", "resourceVersion": "7", "labels": draw(st.dictionaries(keys, texts))}
    node["metadata"]["labels"] |= known
    node["metadata"]["annotations"][DATA_ANNOTATION] = draw(annotations())
    node["spec"] = {**node.get("spec", {}), "unschedulable": draw(st.booleans())}
    if draw(st.booleans()):
        node["metadata"]["annotations"]["haulout.dev/cordon"] = draw(st.sampled_from(("{", "{}", '{"owners":{}}')))
    if draw(st.booleans()):
        node["metadata"]["annotations"][PENDING_ANNOTATION] = draw(texts | st.just('{"os":{"next":"in-maintenance"}}'))
    if draw(st.booleans()):
        node["status"] = {"conditions": draw(st.lists(conditions, max_size=2))}
    for absent in draw(st.sampled_from(((), (), ("spec",), ("status",), ("spec", "status")))):
        node.pop(absent, None)
    for absent in draw(st.sampled_from(((), (), (), ("labels",), ("annotations",), ("labels", "annotations")))):
        node["metadata"].pop(absent, None)
    return node


def _data_of(node: Any) -> str | None:
    found: str | None = node["metadata"].get("annotations", {}).get(DATA_ANNOTATION)
    return found


@st.composite
def clusters(draw: st.DrawFn) -> FakeClusterView:
    """Return a cluster of two nodes with all objects that checks use."""
    raws = [draw(nodes("n1")), draw(nodes("n2"))]
    entries = {raw_node["metadata"]["name"]: data_annotation.statuses_of(_data_of(raw_node)) for raw_node in raws}
    spec: dict[str, Any] = {}
    renewed = draw(st.sampled_from(("2024-05-01T10:00:00.000000Z", "9999-12-31T23:59:59.999999Z", None)))
    if renewed is not None:
        spec = {"renewTime": renewed, "leaseDurationSeconds": draw(st.sampled_from((0, 60, 2**31 - 1)))}
    cluster = AnsweringCluster(
        *raws,
        entries=entries,
        pods=[a_pod("shop/p", on="n1")],
        leases=[a_lease("turn-0", namespace="x", **spec)],
        hypervisors=[{"metadata": {"name": "n1"}, "status": {"evicted": draw(st.booleans())}}]
        if draw(st.booleans())
        else [],
        evicted={"n1": [EvictedWorkload(name="Deployment shop/p", desired=2, available=1, available_before=2)]},
    )
    cluster.given = draw(st.sampled_from((None, QueryResult(NOW, problem="no way"), *map(_vector, (math.nan, 3.0)))))
    return cluster


def _vector(value: float) -> QueryResult:
    return QueryResult(NOW, value=Samples("vector", (value,), ()))


class AnsweringCluster(FakeClusterView):
    """A cluster view in which all queries have the same result."""

    given: QueryResult | None = None

    def query_result(self, query: ExternalQuery) -> QueryResult | None:
        """Return the configured response."""
        if isinstance(query, CalendarFileQuery) and self.given is not None:
            return QueryResult(NOW, problem="there is no such file")
        is_number = isinstance(query, PoolSizesQuery)
        return QueryResult(NOW, value=3) if is_number and self.given and self.given.value else self.given


drains = st.dictionaries(
    st.sampled_from(PROFILES),
    st.sampled_from((DrainStatus(True, "done"), DrainStatus(False, "goes on"), DrainStatus(False, "", "gave up"))),
)


def decisions(
    configuration: Configuration,
    node: Node,
    cluster: FakeClusterView,
    now: datetime,
    drain_statuses: dict[str, DrainStatus],
) -> Decision:
    text = node.metadata.annotations.get(DATA_ANNOTATION)
    observation = Observation(
        node=node,
        statuses=data_annotation.statuses_of(text),
        last_sent=data_annotation.last_sent_of(text),
        pending=read_pending(node),
        drains=drain_statuses,
        cluster=cluster,
        requeue=configuration.requeue,
        now=now,
    )
    return decide(observation, configuration.profiles)


def texts_of(result: Decision) -> list[str]:
    """Return all errors."""
    errors = [transition.error for report in result.reports for transition in report.transitions]
    return [*errors, *(report.error for report in result.reports)]


clocks = (datetime(1970, 1, 1, tzinfo=UTC), datetime(9990, 12, 31, 23, 59, tzinfo=UTC))  # of any machine
moments = st.sampled_from((NOW, *clocks, datetime(2024, 2, 29, tzinfo=UTC))) | st.datetimes(
    *(it.replace(tzinfo=None) for it in clocks), timezones=st.just(UTC)
)


def test_generators_cover_all_builtin_plugins() -> None:
    known = registries()
    assert (set(CHECKS), set(TRIGGERS), set(SCHEDULES)) == tuple(
        {kind for kind, plugin in kinds.items() if plugin.__module__.startswith("haulout.")}
        for kinds in (known.checks, known.triggers, known.schedules)
    )


observations = st.lists(st.tuples(clusters(), drains, moments), min_size=4, max_size=4)


@settings(max_examples=40)
@given(configuration=configurations(), drawn_observations=observations)
def test_decision_never_raises_and_its_output_can_be_parsed(
    configuration: Configuration | None,
    drawn_observations: list[tuple[FakeClusterView, dict[str, DrainStatus], datetime]],
) -> None:
    if configuration is None:
        return
    for cluster, drain_statuses, now in drawn_observations:
        check_steps(configuration, cluster, drain_statuses, now)


def check_steps(
    configuration: Configuration, cluster: FakeClusterView, drain_statuses: dict[str, DrainStatus], now: datetime
) -> None:
    """Make some decisions, and check the invariants of each."""
    node = cluster.node("n1")
    for _ in range(4):
        before = {
            name
            for name, item in data_annotation.statuses_of(node.metadata.annotations.get(DATA_ANNOTATION)).items()
            if item.current == State.IN_MAINTENANCE
        }
        result = decisions(configuration, node, cluster, now, drain_statuses)
        assert not [item for item in texts_of(result) if "the plugin" in item], "a plugin broke"
        assert result.requeue_at is None or result.requeue_at > now
        maintained = {item.name for item in result.reports if item.next == State.IN_MAINTENANCE}
        assert len(maintained) <= max(1, len(before & maintained)), "a second profile entered maintenance"
        text = data_annotation.updated(
            node.metadata.annotations.get(DATA_ANNOTATION), result.statuses, result.last_sent
        )
        assert data_annotation.statuses_of(text) == dict(result.statuses)
        assert set(result.drains) <= {item.name for item in result.reports}
        assert {name for name, _ in result.claims} == set(result.claimed_transitions)
        written = {DATA_ANNOTATION: text, PENDING_ANNOTATION: encode_pending(result.pending)}
        draft = result.draft.with_labels({STATE_LABEL: str(result.state)}).with_annotations(written)
        draft.patch()
        assert read_pending(draft.node) == dict(result.pending)
        msgspec.json.encode(draft.node)
        node, now = draft.node, add_saturating(now, timedelta(minutes=1))
        observed = ObservedNode(node, result.statuses)
        assert observed.state == result.state
