"""The configuration as the API shows it: the file without secrets, what is wrong with it by line, profiles in words.

It is pure, and takes a while for a large file: whoever serves it does so in a thread, once for each state of the file.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from haulout.errors import ConfigError, ConfigErrors
from haulout.profiles import default, inwords, picture
from haulout.profiles import model as profiles
from haulout.profiles.config import Registries
from haulout.profiles.struck import Struck, strike
from haulout.profiles.trial import attempt
from haulout.web.api.shapes import Configuration, Finding, Level, ProfileText

MOST_FINDINGS = 200
MOST_PROFILES = 200
_LONGEST = 1_000  # characters of what is said about a line


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A configuration file, as its operator knows it."""

    path: str
    newest: bytes | None = field(repr=False)  # what it says; None: it is not there
    good: bytes | None = field(repr=False)  # what it said when it last made sense; None: it never did
    problem: ConfigErrors | None = None  # what is wrong with the newest
    warnings: tuple[ConfigError, ...] = ()  # of the good one
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)


def told(file: File, registries: Registries) -> Configuration:
    """Return what profiles go by."""
    recovery = default.recovery_of(file.environ)
    if file.good is None and file.newest is None:
        shipped = default.text(recovery)
        words = in_words(default.configuration(recovery), {}, Struck(shipped, ()))
        return Configuration(path=file.path, text=shipped, is_default=True, profiles=words)
    good = strike(_text(file.good), registries)
    found = attempt(file.good or b"", registries, file.environ, file=file.path)
    loaded = None if file.good is None else found.loaded
    configuration = (
        default.configuration(recovery) if loaded is None else default.in_force(loaded.configuration, recovery=recovery)
    )
    words = in_words(configuration, found.values, good)
    if file.problem is None:
        findings = findings_of((), file.warnings, good, found.values)
        return Configuration(path=file.path, text=good.text, findings=findings, profiles=words)
    newest = strike(_text(file.newest), registries)
    return Configuration(
        path=file.path,
        text=newest.text,
        is_in_force=False,
        in_force=good.text if file.good is not None else default.text(recovery),
        is_default=file.good is None,
        findings=findings_of(file.problem.errors, file.problem.warnings, newest, found.values),
        profiles=words,
    )


def findings_of(
    errors: Iterable[ConfigError], warnings: Iterable[ConfigError], struck: Struck, values: Mapping[str, str]
) -> tuple[Finding, ...]:
    """Return what is wrong and what is doubtful, in the order of the lines; `values` are those of variables."""
    found = [*(_finding(it, Level.CRITICAL, struck, values) for it in errors)]
    found += (_finding(it, Level.WARNING, struck, values) for it in warnings)
    return tuple(sorted(found[:MOST_FINDINGS], key=lambda it: it.line))


def in_words(
    configuration: profiles.Configuration, values: Mapping[str, str], struck: Struck
) -> tuple[ProfileText, ...]:
    """Return what each profile does with a node, and what its checks, triggers and notifications are."""
    shown = list(configuration.profiles.values())[:MOST_PROFILES]
    return tuple(
        ProfileText(
            name=struck.hide(inwords.masked(it.name, values)),
            text=tuple(map(struck.hide, _explained(configuration, it.name, values))),
        )
        for it in shown
    )


def _explained(configuration: profiles.Configuration, name: str, values: Mapping[str, str]) -> Iterator[str]:
    profile = configuration.profiles[name]
    yield from (inwords.masked(it, values) for it in picture.explained(profile))
    for it in inwords.tell_all(replace(configuration, profiles={name: profile}), values):
        settings = f" ({it.settings})" if it.options else ""
        yield f"{it.family} {it.name}: {it.type}{settings}: {it.prose}"


def _finding(error: ConfigError, level: Level, struck: Struck, values: Mapping[str, str]) -> Finding:
    said = struck.hide(inwords.masked(" ".join(error.problem.split()), values))
    return Finding(
        message=said if len(said) <= _LONGEST else f"{said[:_LONGEST]}…",
        line=error.line or 0,
        key=struck.hide(inwords.masked(error.key or "", values)),
        level=level,
    )


def _text(data: bytes | None) -> str:
    return (data or b"").decode("utf-8", "replace")
