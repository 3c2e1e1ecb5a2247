"""API responses for browser tests of the pages notices and configuration, including texts that attempt injection.

`timeline` and `node_detail` have those of the other pages. All instants are relative to `now`, because a page compares
them with its clock.
"""

from datetime import datetime, timedelta

from haulout.dashboard.api.types import (
    Configuration,
    ConfigurationChange,
    ConfigurationPreview,
    Finding,
    Level,
    Notice,
    NoticeHistoryEntry,
    NoticeList,
    ProfileDescription,
)

HOSTILE = '<img src=x onerror="window.pwned=1">"><script>window.pwned=1</script>'
LONG_TEXT = "a" * 240

_MINUTE = timedelta(minutes=1)
_HOUR = timedelta(hours=1)
_DAY = timedelta(days=1)


# Notices


def a_moved_notice(now: datetime) -> Notice:
    """Return a notice that its source agreed to reschedule."""
    return Notice(
        name="aws-event-9c1d",
        phase="Planned",
        kind="Reboot",
        node="general-05",
        source="aws",
        id="instance-event-0d59937288b749b32",
        reason="system-reboot",
        description="The instance will be rebooted for a host update.",
        start=now + 26 * _HOUR,
        end=now + 28 * _HOUR,
        deadline=now + 12 * _DAY,
        drain_at=now + 26 * _HOUR - 53 * _MINUTE,
        predicted_drain_seconds=53 * 60,
        is_on_time=True,
        on_time_message="it is not due yet",
        reschedulable=True,
        rescheduled="aws agreed to another time, within the window night of profile os",
        history=(
            NoticeHistoryEntry(
                time=now - 2 * _HOUR, reporter="aws", message="RescheduleAccepted: moved by 9h into the window night"
            ),
            NoticeHistoryEntry(
                time=now - 3 * _HOUR,
                reporter="haulout",
                message="RescheduleRequested: night is closed at the planned start",
            ),
            NoticeHistoryEntry(
                time=now - 20 * _HOUR, reporter="aws", message="Announced: Reboot, not before 10:00 UTC"
            ),
        ),
    )


def some_notices(now: datetime) -> NoticeList:
    """One notice of each phase, on time and late, from clouds and from users."""
    return NoticeList(
        revision="7",
        notices=(
            Notice(
                name="rack-7-swap",
                phase="Active",
                kind="Stop",
                node="large-03",
                source="tickets",
                reason="PowerFeed",
                start=now - 25 * _MINUTE,
                end=now + 95 * _MINUTE,
                is_on_time=False,
                on_time_message="it began, and 2 pods were left: shop/cart-0, shop/cart-1",
            ),
            Notice(
                name="oci-e1",
                phase="Due",
                kind="Reboot",
                node="large-01",
                source="oci",
                reason="EVACUATION",
                start=now + 12 * _MINUTE,
                end=now + 72 * _MINUTE,
                drain_at=now - 3 * _MINUTE,
                is_on_time=False,
                on_time_message="large-01 has 3 pods left (shop/cart-0, shop/cart-1, shop/db-0): its drain has not "
                "begun; `haulout why large-01` shows what it waits for",
            ),
            a_moved_notice(now),
            Notice(
                name="people-chg-17-4f2a",
                phase="Planned",
                kind="Stop",
                node="large-02",
                source="people",
                id="CHG-17",
                reason="PowerFeed",
                description="Rack 12 gets a second power feed. Ticket DC-4711.",
                start=now + 28 * _HOUR,
                end=now + 31 * _HOUR,
                drain_at=now + 28 * _HOUR - 15 * _MINUTE,
                is_on_time=True,
                on_time_message="it is not due yet",
            ),
            Notice(
                name="evil",
                phase="Planned",
                kind="Unknown",
                source=HOSTILE,
                reason=HOSTILE,
                description=LONG_TEXT,
                on_time_message=HOSTILE,
                start=now + 6 * _DAY,
            ),
            Notice(
                name="aws-event-4",
                phase="Completed",
                kind="Migrate",
                node="large-02",
                source="aws",
                start=now - 2 * _DAY,
                end=now - 46 * _HOUR,
                is_on_time=True,
                on_time_message="nothing was left 20m before",
            ),
            Notice(
                name="people-chg-12-9d1b",
                phase="Cancelled",
                kind="Reboot",
                node="general-012",
                source="people",
                start=now - _DAY,
                history=(NoticeHistoryEntry(time=now - 30 * _HOUR, reporter="kubectl-edit", message="Cancelled"),),
            ),
            Notice(name="oci-e0", phase="Missed", kind="Reboot", node="general-09", source="oci", start=now - 3 * _DAY),
        ),
    )


# The configuration

GOOD_FILE = """\
# OS patching by night: one node at a time.
intervals:
  requeue: 1m
instances:
  check:
  - name: patches_pending
    type: hasLabel
    config: {key: example.com/patches, value: pending}
  - name: night
    type: timeWindow
    config:
      timezone: Europe/Berlin
      weekdays: [mon, tue, wed, thu]
      start: "22:00"
      end: "04:00"
      acrossMidnight: true
  - name: one_at_a_time
    type: maxMaintenance
    config: {max: 1}
  trigger:
  - name: drain
    type: eviction
    config: {action: drain}
  - name: uncordon
    type: eviction
    config: {action: uncordon}
  notify:
  - name: tell_the_team
    type: slack
    config: {hook: ${SLACK_HOOK}, channel: "#ops"}
profiles:
- name: os
  operational:
    transitions:
    - {check: patches_pending, next: maintenance-required}
  maintenance-required:
    transitions:
    - {check: night && one_at_a_time, next: in-maintenance, trigger: drain}
  in-maintenance:
    transitions:
    - {check: "!patches_pending", next: operational, trigger: uncordon}
"""

BROKEN_FILE = GOOD_FILE.replace("requeue: 1m", "requeue: soon").replace("type: hasLabel", "type: hasLable")

_FINDINGS = (
    Finding(
        line=3, key="intervals.requeue", message="expected a duration such as 90s, 5m or 1h30m, found the text 'soon'"
    ),
    Finding(
        line=7,
        key="instances.check[0].type",
        message="expected a plugin, found 'hasLable'; did you mean hasLabel?",
    ),
    Finding(line=28, key="instances.notify[0]", message="no chain uses tell_the_team", level=Level.WARNING),
)

_PROFILE_TEXTS = (
    ProfileDescription(
        name="os",
        text=(
            "operational",
            "  to maintenance-required when patches_pending",
            "maintenance-required",
            "  to in-maintenance when night && one_at_a_time, by drain",
            "in-maintenance",
            "  to operational when !patches_pending, by uncordon",
            "check night: timeWindow (weekdays: mon, tue, wed, thu): Passes within a time window.",
        ),
    ),
)


def a_configuration() -> Configuration:
    """Return a configuration in force, with a warning."""
    return Configuration(
        path="config/maintenance.yaml", text=GOOD_FILE, findings=_FINDINGS[2:], profiles=_PROFILE_TEXTS
    )


def a_broken_configuration() -> Configuration:
    """Return an invalid new configuration while the last valid one stays in force."""
    return Configuration(
        path="config/maintenance.yaml",
        text=BROKEN_FILE,
        is_in_force=False,
        in_force=GOOD_FILE,
        findings=_FINDINGS,
        profiles=_PROFILE_TEXTS,
    )


def the_default_configuration() -> Configuration:
    """Return the default configuration, without a file."""
    return Configuration(text=GOOD_FILE, is_default=True, profiles=_PROFILE_TEXTS)


def preview(text: str) -> ConfigurationPreview:
    """Return the preview of an edit; an edit with an unknown plugin is invalid."""
    if "hasLable" in text:
        line = 1 + text[: text.index("hasLable")].count("\n")
        return ConfigurationPreview(
            is_valid=False, findings=(Finding(line=line, key="type", message="expected a plugin, found 'hasLable'"),)
        )
    if text == GOOD_FILE:
        return ConfigurationPreview(is_valid=True, evaluated_nodes=42, profiles=_PROFILE_TEXTS)
    return ConfigurationPreview(
        is_valid=True,
        evaluated_nodes=42,
        profiles=_PROFILE_TEXTS,
        changes=(
            ConfigurationChange(
                profile="os",
                text="would go into maintenance now; with the configuration in force they stay maintenance-required, "
                "and wait for one_at_a_time",
                nodes=("general-05", "general-06", "large-01"),
                count=3,
            ),
            ConfigurationChange(
                profile="gpu",
                text="would get profile gpu, and stay operational",
                nodes=tuple(f"general-{number:03}" for number in range(1, 21)),
                count=42,
            ),
            ConfigurationChange(text="check one_at_a_time changed: now “max: 2”; no longer “max: 1”"),
        ),
    )
