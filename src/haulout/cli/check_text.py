"""What `haulout check` says: lines as compilers print them, an explanation, diagrams, or JSON for programs."""

from collections.abc import Iterator, Sequence

import click
import msgspec

from haulout.budget.limits import Budget, BudgetLimit
from haulout.cli import configuring
from haulout.cli.terminal import printable
from haulout.core import duration
from haulout.errors import ConfigError
from haulout.profiles import inwords, picture
from haulout.profiles.inwords import Told
from haulout.profiles.model import Configuration, Profile
from haulout.profiles.object_notifications import described
from haulout.profiles.reviewing import reachable
from haulout.profiles.trial import Trial
from haulout.profiles.words import counted

_HEADINGS = {"check": "Checks", "trigger": "Triggers", "notification": "Notifications"}


def findings(found: Trial) -> Iterator[str]:
    """Yield a line for each error and each warning, as editors understand it: `file:line: error: key: problem`."""
    yield from listed(found.errors, found.warnings)


def listed(errors: Sequence[ConfigError], warnings: Sequence[ConfigError]) -> Iterator[str]:
    """Yield the same of errors and warnings."""
    yield from (_finding(it, click.style("error", fg="red", bold=True)) for it in errors)
    yield from (_finding(it, click.style("warning", fg="yellow")) for it in warnings)


def _finding(it: ConfigError, kind: str) -> str:
    where = ":".join(str(part) for part in (it.file, it.line, it.column) if part is not None)
    what = ": ".join(part for part in (it.key, it.problem) if part)
    return f"{printable(where)}: {kind}: {printable(' '.join(what.split()))}"


def advice(found: Trial, *, assumed: bool) -> Iterator[str]:
    """Yield what can be done about variables that are not set here."""
    if not found.unset:
        return
    names = printable(", ".join(found.unset))
    if assumed:
        yield f"Not set here, and taken for set where the operator runs: {names}."
        return
    yield f"Not set here: {names}. What is set where the operator runs is taken for set with --ignore-env; to check"
    yield f"with a certain value: --env {printable(found.unset[0])}=value."


def explanation(found: Trial, *, file: str) -> Iterator[str]:
    """Yield what the file makes of nodes; if it cannot be used, only that."""
    if found.loaded is None:
        yield f"{printable(file)} cannot be used: {counted(len(found.errors), 'error')}."
        return
    configuration = found.loaded.configuration
    if found.warnings:
        yield ""
    doubts = f", with {counted(len(found.warnings), 'warning')}" if found.warnings else ""
    yield f"{printable(file)} can be used{doubts}."
    if configuration.profiles:
        yield f"Checks that ask the outside are repeated every {duration.format(configuration.requeue)}."
    yield from map(printable, _budget(configuration.budget))
    if configuration.notifications:
        yield "Told about NodeMaintenances and MaintenanceNotices:"
        yield from (printable(f"  {it}") for it in described(configuration.notifications))
    if not configuration.profiles:
        yield "There are no profiles: nodes are taken out of service on a person's order, and for maintenance that is"
        yield "announced, by the default: haulout check --print-default."
        return
    yield ""
    yield from map(printable, picture.explain(configuration))
    yield from _legend(inwords.tell_all(configuration, found.values))


def _budget(budget: Budget) -> Iterator[str]:
    if not budget:
        return
    yield "Out of service at once, by profiles, on a person's order or because they are down:"
    yield from (f"  {limit}" for limit in budget.limits)


def _legend(told: Sequence[Told]) -> Iterator[str]:
    for family, heading in _HEADINGS.items():
        ours = [it for it in told if it.family == family]
        if not ours:
            continue
        width = max(len(printable(it.name)) for it in ours)
        yield ""
        yield heading
        for it in ours:
            options = f" ({it.settings})" if it.options else ""
            yield f"  {printable(it.name):{width}}  {printable(it.type + options)}"
            yield f"  {'':{width}}  {printable(it.prose)}"


def graphs(found: Trial) -> str:
    """Return a diagram for each profile in which something happens."""
    if found.loaded is None:
        return ""
    profiles = found.loaded.configuration.profiles.values()
    shown = [it for it in profiles if any(state.transitions for state in it.states.values())]
    return "\n".join(f"---\ntitle: {_title(it.name)}\n---\n{picture.mermaid(it)}" for it in shown)


def _title(name: str) -> str:
    return msgspec.json.encode(name).decode()  # which is YAML, too


# For programs


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


class _Checked(_Json, frozen=True):
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


def as_json(found: Trial, *, file: str, namespace: str) -> bytes:
    """Return it for programs; `haulout check --help` documents the fields."""
    checked = _Checked(
        file=file,
        ok=found.loaded is not None,
        errors=tuple(map(_finding_json, found.errors)),
        warnings=tuple(map(_finding_json, found.warnings)),
        unset=found.unset,
    )
    if found.loaded is not None:
        configuration = found.loaded.configuration
        checked = msgspec.structs.replace(
            checked,
            requeue=duration.format(configuration.requeue),
            profiles=tuple(map(_profile_json, configuration.profiles.values())),
            instances=_instances_json(configuration, found),
            permissions=configuring.documented(configuration, namespace=namespace),
            budget=tuple(map(_limit_json, configuration.budget.limits)),
        )
    return msgspec.json.format(msgspec.json.encode(checked))


def _finding_json(it: ConfigError) -> _Finding:
    return _Finding(line=it.line, key=it.key, problem=it.problem)


def _limit_json(limit: BudgetLimit) -> _Limit:
    selector = None if limit.selector is None else str(limit.selector)
    return _Limit(max=limit.most, group_by=limit.group_by, selector=selector)


def _profile_json(profile: Profile) -> _Profile:
    at_all = reachable(profile)
    states = tuple(
        _State(
            state=state,
            reachable=state in at_all,
            enter=tuple(it.name for it in found.enter),
            notify=tuple(it.name for it in found.notify),
            transitions=tuple(
                _Transition(
                    next=way.next,
                    check=way.check.text,
                    checks=tuple(dict.fromkeys(way.check.names)),
                    trigger=tuple(it.name for it in way.trigger),
                )
                for way in found.transitions
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


def _instances_json(configuration: Configuration, found: Trial) -> tuple[_Instance, ...]:
    return tuple(
        _Instance(family=it.family, name=it.name, type=it.type, options=dict(it.options))
        for it in inwords.tell_all(configuration, found.values)
    )
