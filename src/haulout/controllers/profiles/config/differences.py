"""How two configurations differ, for the log line and the event of a reload."""

from collections.abc import Iterator, Mapping
from typing import Any

from haulout.controllers.profiles.config.model import Configuration
from haulout.core import duration


def differences(before: Configuration, after: Configuration) -> Iterator[str]:
    """Yield one short text for each difference, such as `check window changed`."""
    if before.requeue != after.requeue:
        yield f"requeue is {duration.format(after.requeue)} instead of {duration.format(before.requeue)}"
    if before.label_filter != after.label_filter:
        yield "the label filter of the dashboard changed"
    if before.budget != after.budget:
        yield f"the budget is {', '.join(map(str, after.budget.limits))}" if after.budget else "the budget is gone"
    if before.notifications != after.notifications:
        from haulout.controllers.profiles.notify.object_notifier import describe_rules  # with the delivery of messages

        yield f"notifications of objects: {'; '.join(describe_rules(after.notifications)) or 'none'}"
    for family, names in _instances(before).items():
        yield from _named_differences(family, names, _instances(after)[family])
    yield from _named_differences("profile", before.profiles, after.profiles)
    yield from _named_differences("section", before.sections, after.sections)


def _instances(configuration: Configuration) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {"check": {}, "notification": {}, "trigger": {}}
    for profile in configuration.profiles.values():
        for state in profile.states.values():
            found["notification"] |= {member.name: member for member in state.notify}
            found["trigger"] |= {member.name: member for member in state.enter}
            for transition in state.transitions:
                found["check"] |= {member.name: member for member in transition.check.members}
                found["trigger"] |= {member.name: member for member in transition.trigger}
    return found


def _named_differences(family: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted({*before, *after}):
        if name not in before:
            yield f"{family} {name} is new"
        elif name not in after:
            yield f"{family} {name} is removed"
        elif before[name] != after[name]:
            yield f"{family} {name} changed"
