"""Notifications about objects: due times, texts and configuration."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from haulout.api.maintenancenotice import MaintenanceNotice
from haulout.api.nodemaintenance import NodeMaintenance
from haulout.api.notification_events import EventName, ObjectEvent
from haulout.api.objects import Object, ObjectMeta
from haulout.controllers.nodemaintenance import notification as of_maintenances
from haulout.controllers.notices import events as of_notices
from haulout.controllers.profiles.config import loader
from haulout.controllers.profiles.config.differences import differences
from haulout.controllers.profiles.config.loader import Loaded
from haulout.controllers.profiles.config.model import Member, NotificationRule
from haulout.controllers.profiles.notify.object_notifier import (
    MAX_EVENT_AGE,
    NOTIFICATIONS_ANNOTATION,
    decide_notifications,
    describe_rules,
    sent_annotation,
    sent_notifications,
)
from haulout.controllers.profiles.plugin import Notification
from haulout.controllers.profiles.plugins.notifications.slack import Slack
from haulout.controllers.profiles.plugins.notifications.teams import Teams
from haulout.controllers.profiles.plugins.registry import registries
from haulout.errors import ConfigErrors
from haulout_sandbox.event_loops.virtual_time import EPOCH
from support.fakes.external_client import FakeExternalClient, a_message

MINUTE = timedelta(minutes=1)
BLOCKED = EventName.NODE_MAINTENANCE_BLOCKED
HOOK: Notification = Slack(hook="https://slack.test/x", channel="#ops", message="{{ .Message }}")


def a_rule(*events: EventName, after: timedelta = timedelta(), to: Iterable[str] = ("ops",)) -> NotificationRule:
    members = tuple(Member(name, HOOK) for name in to)
    return NotificationRule(members=members, events=frozenset(events or EventName), after=after)


def an_event(name: EventName = BLOCKED, key: str = "a", *, at: datetime = EPOCH) -> ObjectEvent:
    return ObjectEvent(name=name, key=key, at=at, message=f"{name} {key}", is_ongoing=name is BLOCKED)


def notified(*events: ObjectEvent, rule: NotificationRule, now: datetime = EPOCH, sent: Any = None) -> list[str]:
    decision = decide_notifications(events, [rule], sent=sent or {}, now=now)
    return [f"{notification.instance}: {notification.event.message}" for notification in decision.due]


def test_blocked_event_is_notified_after_its_delay_with_all_blockers() -> None:
    rule, events = a_rule(after=30 * MINUTE), (an_event(key="a"), an_event(key="b", at=EPOCH + 5 * MINUTE))
    early = decide_notifications(events, [rule], sent={}, now=EPOCH + 10 * MINUTE)
    assert (early.due, early.sent, early.requeue_at) == ((), {}, EPOCH + 30 * MINUTE)
    late = decide_notifications(events, [rule], sent=early.sent, now=EPOCH + 30 * MINUTE)
    assert len(late.due) == 1
    assert set(late.sent["ops"][BLOCKED]) == {"a", "b"}
    assert notified(*events, rule=rule, sent=late.sent, now=EPOCH + 40 * MINUTE) == []
    other = an_event(key="c", at=EPOCH + 20 * MINUTE)
    assert notified(*events, other, rule=rule, sent=late.sent, now=EPOCH + 50 * MINUTE) == [f"ops: {BLOCKED} c"]


def test_finished_event_is_notified_only_while_it_is_recent() -> None:
    failed = an_event(EventName.NODE_MAINTENANCE_FAILED)
    assert len(notified(failed, rule=a_rule(), now=EPOCH + MAX_EVENT_AGE - MINUTE)) == 1
    assert notified(failed, rule=a_rule(), now=EPOCH + MAX_EVENT_AGE) == []
    assert len(notified(an_event(BLOCKED), rule=a_rule(), now=EPOCH + 10 * MAX_EVENT_AGE)) == 1


def test_each_instance_is_notified_once_of_the_events_of_its_rule() -> None:
    failed = an_event(EventName.NODE_MAINTENANCE_FAILED)
    assert notified(failed, rule=a_rule(BLOCKED)) == []
    decision = decide_notifications([failed], [a_rule(to=("a", "b")), a_rule(to=("b", "c"))], sent={}, now=EPOCH)
    assert [notification.instance for notification in decision.due] == ["a", "b", "c"]


def test_number_of_remembered_notifications_is_limited() -> None:
    many = {"ops": {BLOCKED: {str(number): "x" for number in range(100)}}}
    assert notified(an_event(), rule=a_rule(), sent=many) == []


@pytest.mark.parametrize("text", ["", "nonsense", "[]", '{"ops": 1}', "[" * 100_000, '{"ops": {"x": {"y": 1}}}'])
def test_unreadable_annotation_counts_as_nothing_sent(text: str) -> None:
    assert sent_notifications(Object(metadata=ObjectMeta(annotations={NOTIFICATIONS_ANNOTATION: text}))) == {}


def test_sent_annotation_round_trips() -> None:
    sent = {"ops": {"NodeMaintenanceBlocked": {"a": "2026-01-05T09:00:00Z"}}}
    assert (
        sent_notifications(Object(metadata=ObjectMeta(annotations={NOTIFICATIONS_ANNOTATION: sent_annotation(sent)})))
        == sent
    )


def a_maintenance(**status: Any) -> NodeMaintenance:
    written = {
        "metadata": {
            "name": "m1",
            "uid": "u1",
            "managedFields": [{"manager": "kubectl-create", "time": "2026-01-05T09:00:00Z"}],
        },
        "spec": {"nodeName": "n1", "reason": "new kernel"},
        "status": status,
    }
    return msgspec.convert(written, NodeMaintenance)


def event_names(maintenance: NodeMaintenance) -> list[tuple[str, str]]:
    return [(event.name, event.key) for event in of_maintenances.object_events(maintenance)]


def test_phase_events_have_the_transition_number_as_key() -> None:
    phases = ["Running", "Failed", "Running", "Succeeded", "", "Running"]
    changes = [
        {"number": number, "phase": phase, "time": "2026-01-05T09:00:00Z"} for number, phase in enumerate(phases, 1)
    ]
    found = a_maintenance(phase="Running", phaseTransitions=changes)
    assert event_names(found) == [
        ("NodeMaintenanceStarted", "1"),
        ("NodeMaintenanceFailed", "2"),
        ("NodeMaintenanceSucceeded", "4"),
        ("NodeMaintenanceStarted", "6"),
    ]
    gone = msgspec.structs.replace(found, metadata=msgspec.structs.replace(found.metadata, deletion_timestamp=EPOCH))
    assert event_names(gone) == []


def test_blocker_events_have_the_blocking_object_as_key() -> None:
    since = "2026-01-05T09:00:00Z"
    blockers = [
        {"kind": "DisruptionBudget", "object": "PodDisruptionBudget shop/cart", "pod": "shop/a", "since": since},
        {"kind": "DisruptionBudget", "object": "PodDisruptionBudget shop/cart", "pod": "shop/b", "since": since},
        {"kind": "Completion", "pod": "shop/job", "since": since},
        {"kind": "Budget", "object": "budget: n2, n3", "since": since},
        {"kind": "Kubelet", "pod": "shop/c", "since": since},
    ]
    found = a_maintenance(phase="Running", blockers=blockers)
    keys = ["DisruptionBudget PodDisruptionBudget shop/cart"] * 2 + ["Budget budget", "Kubelet shop/c"]
    assert [key for _, key in event_names(found)] == keys
    involved = of_maintenances.involved_object(found)
    assert (involved.requested_by, len(involved.blockers)) == ("kubectl-create", 4)


def a_notice(**status: Any) -> MaintenanceNotice:
    written = {
        "metadata": {"name": "chg-17", "creationTimestamp": "2026-01-05T09:00:00Z"},
        "spec": {"nodeName": "n1", "kind": "Reboot", "source": "dc"},
        "status": status,
    }
    return msgspec.convert(written, MaintenanceNotice)


def test_notice_events_cover_reception_delay_and_end() -> None:
    late = {"type": "OnTime", "status": "False", "message": "pods stay", "lastTransitionTime": "2026-01-05T10:00:00Z"}
    assert list(of_notices.notified_events(a_notice())) == []
    assert [event.name for event in of_notices.notified_events(a_notice(phase="Planned"))] == ["NoticeReceived"]
    received, tardy = of_notices.notified_events(a_notice(phase="Due", conditions=[late]))
    assert (tardy.key, tardy.message) == (
        "2026-01-05T10:00:00Z",
        "MaintenanceNotice chg-17 of node n1 is late: pods stay",
    )
    over = a_notice(phase="Completed", conditions=[late], endedAt="2026-01-05T11:00:00Z")
    assert [event.name for event in of_notices.notified_events(over)] == ["NoticeReceived", "NoticeEnded"]
    assert received.message.endswith("dc announces Reboot, at any moment")


async def test_templates_contain_the_fields_of_the_object() -> None:
    blocker = {
        "kind": "DisruptionBudget",
        "object": "PodDisruptionBudget shop/cart",
        "reason": "it needs 2",
        "remedy": "run more",
        "since": "2026-01-05T09:00:00Z",
    }
    found = a_maintenance(phase="Running", blockers=[blocker])
    (event,) = of_maintenances.object_events(found)
    message = a_message(
        profile="", state=event.name.state, event=event, involved=of_maintenances.involved_object(found)
    )
    text = (
        "{{ .Kind }} {{ .Name }} {{ .Event }} {{ .State }} {{ .Phase }} {{ .Reason }} {{ .RequestedBy }}"
        '{{ range .Blockers }} | {{ .Object }}: {{ .Reason }}: {{ .Remedy }} {{ .Since.Format "15:04" }}{{ end }}'
    )
    external = FakeExternalClient()
    await Slack(hook="https://slack.test/x", channel="#ops", message=text).send(message, external)
    assert external.requests[0].json["text"] == (
        "NodeMaintenance m1 NodeMaintenanceBlocked Blocked Running new kernel kubectl-create"
        " | PodDisruptionBudget shop/cart: it needs 2: run more 09:00"
    )
    await Teams(url="https://teams.test/x", message="{{ .Message }}").send(message, external)
    facts = external.requests[1].json["attachments"][0]["content"]["body"][2]["facts"]
    assert {fact["title"]: fact["value"] for fact in facts} == {
        "Node": "n1",
        "NodeMaintenance": "m1",
        "State": "Blocked",
    }


INSTANCES = """
instances:
  notify:
  - {name: ops, type: slack, config: {hook: "https://slack.test/x", channel: c, message: m}}
"""


def load(text: str) -> Loaded:
    return loader.load(text.encode(), registries(), {})


def errors(text: str) -> list[str]:
    with pytest.raises(ConfigErrors) as caught:
        load(text)
    return [str(error) for error in caught.value.errors]


def test_file_may_contain_only_notifications() -> None:
    loaded = load(f"{INSTANCES}notifications:\n- notify: [ops]\n- notify: ops\n  events: [NoticeLate]\n")
    first, second = loaded.configuration.notifications
    assert (first.events, second.events) == (frozenset(EventName), frozenset({EventName.NOTICE_LATE}))
    assert (loaded.warnings, dict(loaded.configuration.profiles)) == ((), {})
    assert [name for name, _ in loaded.configuration.members()] == ["ops", "ops"]
    assert describe_rules([second]) == ("ops: NoticeLate",)
    assert list(differences(load("budget: [{max: 1}]").configuration, loaded.configuration))[1].startswith(
        "notifications"
    )


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        ("- notify: [oops]", "notifications[0].notify: expected the name of a notification instance, found 'oops'"),
        ("- events: [NoticeLate]", "notifications[0].notify: expected a list of texts, found nothing"),
        ("- {notify: [ops], events: [NoticeLat]}", "found the text 'NoticeLat'; did you mean NoticeLate?"),
        ("- {notify: [ops], events: [NoticeLate], after: 30m}", "notifications[0].after: it applies only to"),
        ("- {notify: [ops], after: -1m}", "notifications[0].after: expected a duration that is not negative"),
        (
            "- {notify: [ops], event: [NoticeLate]}",
            "notifications[0].event: there is no such key; did you mean events?",
        ),
    ],
)
def test_notification_rule_error_is_reported_with_its_line(section: str, problem: str) -> None:
    found = errors(f"{INSTANCES}notifications:\n{section}\n")
    assert any(problem in item and item.startswith("maintenance.yaml:6: ") for item in found), found


def test_notification_instance_requires_a_schedule_unless_a_rule_uses_it() -> None:
    bare = f"intervals: {{requeue: 30s}}{INSTANCES}"
    assert any("instances.notify[0].schedule.type: expected a text" in error for error in errors(bare))
    state = "profiles:\n- name: a\n  operational: {notify: ops}\n"
    found = errors(f"{bare}{state}notifications:\n- notify: [ops]\n")
    expected = "profiles[0].operational.notify: expected notification instances with a schedule, 'ops' has none"
    assert found == [f"maintenance.yaml:7: {expected}"]
