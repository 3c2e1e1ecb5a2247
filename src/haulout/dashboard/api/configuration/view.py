"""The configuration as the API shows it: the redacted file, findings by line, and profiles in words.

Pure, but slow for a large file: the caller runs it in a thread, once per content of the file.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from haulout.controllers.profiles import default_profile
from haulout.controllers.profiles.config import description
from haulout.controllers.profiles.config import model as profiles
from haulout.controllers.profiles.config.description import explain_profile
from haulout.controllers.profiles.config.dry_run import dry_run
from haulout.controllers.profiles.config.loader import Registries
from haulout.controllers.profiles.config.redaction import RedactedConfig, redact_config
from haulout.dashboard.api.types import Configuration, Finding, Level, ProfileDescription
from haulout.errors import ConfigError, ConfigErrors

MAX_FINDINGS = 200
MAX_PROFILES = 200
_MAX_MESSAGE_LENGTH = 1_000  # characters of one finding


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationFile:
    """A configuration file and its state in the operator."""

    path: str
    newest: bytes | None = field(repr=False)  # the current content; None: there is no file
    last_good: bytes | None = field(repr=False)  # the last valid content; None: there was none
    problem: ConfigErrors | None = None  # errors in the current content
    warnings: tuple[ConfigError, ...] = ()  # of the valid content
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)


def configuration_to_api(file: ConfigurationFile, registries: Registries) -> Configuration:
    """Return the configuration as an API value."""
    recovery = default_profile.recovery_timeout(file.environ)
    if file.last_good is None and file.newest is None:
        default_text = default_profile.text(recovery)
        texts = profile_texts(default_profile.configuration(recovery), {}, RedactedConfig(default_text, ()))
        return Configuration(path=file.path, text=default_text, is_default=True, profiles=texts)
    redacted_good = redact_config(_text(file.last_good), registries)
    found = dry_run(file.last_good or b"", registries, file.environ, file=file.path)
    loaded = None if file.last_good is None else found.loaded
    configuration = (
        default_profile.configuration(recovery)
        if loaded is None
        else default_profile.effective_configuration(loaded.configuration, recovery=recovery)
    )
    texts = profile_texts(configuration, found.values, redacted_good)
    if file.problem is None:
        findings = findings_of((), file.warnings, redacted_good, found.values)
        return Configuration(path=file.path, text=redacted_good.text, findings=findings, profiles=texts)
    redacted_newest = redact_config(_text(file.newest), registries)
    return Configuration(
        path=file.path,
        text=redacted_newest.text,
        is_in_force=False,
        in_force=redacted_good.text if file.last_good is not None else default_profile.text(recovery),
        is_default=file.last_good is None,
        findings=findings_of(file.problem.errors, file.problem.warnings, redacted_newest, found.values),
        profiles=texts,
    )


def findings_of(
    errors: Iterable[ConfigError], warnings: Iterable[ConfigError], redaction: RedactedConfig, values: Mapping[str, str]
) -> tuple[Finding, ...]:
    """Return errors and warnings by line; `values` are those of variables."""
    found = [*(_finding(item, Level.CRITICAL, redaction, values) for item in errors)]
    found += (_finding(item, Level.WARNING, redaction, values) for item in warnings)
    return tuple(sorted(found[:MAX_FINDINGS], key=lambda item: item.line))


def profile_texts(
    configuration: profiles.Configuration, values: Mapping[str, str], redaction: RedactedConfig
) -> tuple[ProfileDescription, ...]:
    """Return what each profile does to a node, with its checks, triggers and notifications."""
    profiles_shown = list(configuration.profiles.values())[:MAX_PROFILES]
    return tuple(
        ProfileDescription(
            name=redaction.redact(description.mask_values(profile.name, values)),
            text=tuple(map(redaction.redact, _explain(configuration, profile.name, values))),
        )
        for profile in profiles_shown
    )


def _explain(configuration: profiles.Configuration, name: str, values: Mapping[str, str]) -> Iterator[str]:
    profile = configuration.profiles[name]
    yield from (description.mask_values(item, values) for item in explain_profile(profile))
    for item in description.describe_instances(replace(configuration, profiles={name: profile}), values):
        settings = f" ({item.settings})" if item.options else ""
        yield f"{item.family} {item.name}: {item.type}{settings}: {item.summary}"


def _finding(error: ConfigError, level: Level, redaction: RedactedConfig, values: Mapping[str, str]) -> Finding:
    message = redaction.redact(description.mask_values(" ".join(error.problem.split()), values))
    return Finding(
        message=message if len(message) <= _MAX_MESSAGE_LENGTH else f"{message[:_MAX_MESSAGE_LENGTH]}…",
        line=error.line or 0,
        key=redaction.redact(description.mask_values(error.key or "", values)),
        level=level,
    )


def _text(data: bytes | None) -> str:
    return (data or b"").decode("utf-8", "replace")
