"""Output of `haulout check`: findings like those of compilers, an explanation, diagrams, or JSON."""

from collections.abc import Iterator, Sequence

import click
import msgspec

from haulout.budget.limits import Budget, BudgetLimit
from haulout.cli import configuration_files
from haulout.cli.output import printable
from haulout.controllers.profiles.config import description
from haulout.controllers.profiles.config.description import InstanceDescription, explain, mermaid
from haulout.controllers.profiles.config.dry_run import DryRun
from haulout.controllers.profiles.config.lint import reachable_states
from haulout.controllers.profiles.config.model import Configuration, Profile
from haulout.controllers.profiles.notify.object_notifier import describe_rules
from haulout.core import duration
from haulout.core.text import format_count
from haulout.errors import ConfigError

_HEADINGS = {"check": "Checks", "trigger": "Triggers", "notification": "Notifications"}


def finding_lines(result: DryRun) -> Iterator[str]:
    """Yield a line per error and warning, in the format of editors: `file:line: error: key: problem`."""
    yield from error_lines(result.errors, result.warnings)


def error_lines(errors: Sequence[ConfigError], warnings: Sequence[ConfigError]) -> Iterator[str]:
    """Yield a line per error and warning."""
    yield from (_finding_line(error, click.style("error", fg="red", bold=True)) for error in errors)
    yield from (_finding_line(error, click.style("warning", fg="yellow")) for error in warnings)


def _finding_line(error: ConfigError, kind: str) -> str:
    location = ":".join(str(part) for part in (error.file, error.line, error.column) if part is not None)
    problem = ": ".join(part for part in (error.key, error.problem) if part)
    return f"{printable(location)}: {kind}: {printable(' '.join(problem.split()))}"


def unset_variable_hints(result: DryRun, *, assumed: bool) -> Iterator[str]:
    """Yield hints about variables that are not set here."""
    if not result.unset:
        return
    names = printable(", ".join(result.unset))
    if assumed:
        yield f"Not set here, but assumed to be set where the operator runs: {names}."
        return
    yield f"Not set here: {names}. With --ignore-env, such variables are assumed to be set where the operator runs; to"
    yield f"check with a value: --env {printable(result.unset[0])}=value."


def explanation_lines(result: DryRun, *, file: str) -> Iterator[str]:
    """Yield the explanation of a file; if it is invalid, only that."""
    if result.loaded is None:
        yield f"{printable(file)} cannot be used: {format_count(len(result.errors), 'error')}."
        return
    configuration = result.loaded.configuration
    if result.warnings:
        yield ""
    warning_note = f", with {format_count(len(result.warnings), 'warning')}" if result.warnings else ""
    yield f"{printable(file)} can be used{warning_note}."
    if configuration.profiles:
        yield f"Checks that query external services are repeated every {duration.format(configuration.requeue)}."
    yield from map(printable, _budget_lines(configuration.budget))
    if configuration.notifications:
        yield "Notifications about NodeMaintenances and MaintenanceNotices:"
        yield from (printable(f"  {rule}") for rule in describe_rules(configuration.notifications))
    if not configuration.profiles:
        yield "There are no profiles: nodes are taken out of service for NodeMaintenances, and for maintenance that is"
        yield "announced, by the default configuration: haulout check --print-default."
        return
    yield ""
    yield from map(printable, explain(configuration))
    yield from _instance_lines(description.describe_instances(configuration, result.values))


def _budget_lines(budget: Budget) -> Iterator[str]:
    if not budget:
        return
    yield "Nodes out of service at once, by profiles, by NodeMaintenances or because they are down:"
    yield from (f"  {limit}" for limit in budget.limits)


def _instance_lines(instances: Sequence[InstanceDescription]) -> Iterator[str]:
    for family, heading in _HEADINGS.items():
        of_family = [instance for instance in instances if instance.family == family]
        if not of_family:
            continue
        width = max(len(printable(instance.name)) for instance in of_family)
        yield ""
        yield heading
        for instance in of_family:
            options = f" ({instance.settings})" if instance.options else ""
            yield f"  {printable(instance.name):{width}}  {printable(instance.type + options)}"
            yield f"  {'':{width}}  {printable(instance.summary)}"


def state_diagrams(result: DryRun) -> str:
    """Return a Mermaid diagram per profile that has transitions."""
    if result.loaded is None:
        return ""
    profiles = result.loaded.configuration.profiles.values()
    profiles_with_transitions = [
        profile for profile in profiles if any(state.transitions for state in profile.states.values())
    ]
    return "\n".join(
        f"---\ntitle: {_title(profile.name)}\n---\n{mermaid(profile)}" for profile in profiles_with_transitions
    )


def _title(name: str) -> str:
    return msgspec.json.encode(name).decode()  # a JSON string is valid YAML, too


# JSON output


class _Json(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    pass


class _Finding(_Json, frozen=True):
    line: int | None
    key: str | None
    problem: str


class _Transition(_Json, frozen=True):
    next: str
    check: str
    checks: tuple[str, ...]
    trigger: tuple[str, ...]


class _State(_Json, frozen=True):
    state: str
    reachable: bool
    enter: tuple[str, ...]
    notify: tuple[str, ...]
    transitions: tuple[_Transition, ...]


class _Profile(_Json, frozen=True):
    name: str
    selector: str | None
    on_notice: bool
    states: tuple[_State, ...]


class _Instance(_Json, frozen=True):
    family: str
    name: str
    type: str
    options: dict[str, str]


class _Limit(_Json, frozen=True):
    max: int | str
    group_by: tuple[str, ...]
    selector: str | None


class _CheckReport(_Json, frozen=True):
    file: str
    ok: bool
    errors: tuple[_Finding, ...]
    warnings: tuple[_Finding, ...]
    unset: tuple[str, ...]
    requeue: str | None = None
    profiles: tuple[_Profile, ...] | None = None
    instances: tuple[_Instance, ...] | None = None
    permissions: list[dict[str, object]] | None = None
    budget: tuple[_Limit, ...] | None = None


def as_json(result: DryRun, *, file: str, namespace: str) -> bytes:
    """Return the result as JSON; `haulout check --help` documents the fields."""
    checked = _CheckReport(
        file=file,
        ok=result.loaded is not None,
        errors=tuple(map(_finding_json, result.errors)),
        warnings=tuple(map(_finding_json, result.warnings)),
        unset=result.unset,
    )
    if result.loaded is not None:
        configuration = result.loaded.configuration
        checked = msgspec.structs.replace(
            checked,
            requeue=duration.format(configuration.requeue),
            profiles=tuple(map(_profile_json, configuration.profiles.values())),
            instances=_instances_json(configuration, result),
            permissions=configuration_files.permissions_json(configuration, namespace=namespace),
            budget=tuple(map(_limit_json, configuration.budget.limits)),
        )
    return msgspec.json.format(msgspec.json.encode(checked))


def _finding_json(error: ConfigError) -> _Finding:
    return _Finding(line=error.line, key=error.key, problem=error.problem)


def _limit_json(limit: BudgetLimit) -> _Limit:
    selector = None if limit.selector is None else str(limit.selector)
    return _Limit(max=limit.max_unavailable, group_by=limit.group_by, selector=selector)


def _profile_json(profile: Profile) -> _Profile:
    reachable_names = reachable_states(profile)
    states = tuple(
        _State(
            state=state,
            reachable=state in reachable_names,
            enter=tuple(plugin.name for plugin in found.enter),
            notify=tuple(plugin.name for plugin in found.notify),
            transitions=tuple(
                _Transition(
                    next=transition.next,
                    check=transition.check.text,
                    checks=tuple(dict.fromkeys(transition.check.names)),
                    trigger=tuple(plugin.name for plugin in transition.trigger),
                )
                for transition in found.transitions
            ),
        )
        for state, found in profile.states.items()
    )
    return _Profile(
        name=profile.name,
        selector=None if profile.selector is None else str(profile.selector),
        on_notice=profile.on_notice,
        states=states,
    )


def _instances_json(configuration: Configuration, result: DryRun) -> tuple[_Instance, ...]:
    return tuple(
        _Instance(family=instance.family, name=instance.name, type=instance.type, options=dict(instance.options))
        for instance in description.describe_instances(configuration, result.values)
    )
