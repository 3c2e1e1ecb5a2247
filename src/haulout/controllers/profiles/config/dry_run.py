"""Loads a `maintenance.yaml` outside the operator, and separates its errors from variables that are only unset here.

    found = dry_run(data, registries, os.environ, file="maintenance.yaml", assume_placeholders=True)
    found.unset   # names that the file needs and that have no value here
    found.loaded  # None if there are `found.errors`

A `${NAME}` that is not set on a workstation may be set in the pod. Such names are found by trial: a name is needed if
the file has fewer errors, or other errors, once the name has a value. So the form of the `${…}` does not matter, and
one with a default is not reported. With `assume_placeholders` these names get a value that fits, if there is one.
Otherwise a missing value stays an error.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from haulout.controllers.profiles.config import loader
from haulout.controllers.profiles.config.loader import Loaded, Registries
from haulout.errors import ConfigError, ConfigErrors

# One of these fits most options: text, duration, number, boolean, time of day, URL, server address.
_PLACEHOLDER_FORMATS = ("value-of-{}", "1m", "1", "true", "12:00", "https://{}.invalid", "{}.invalid:25")
_MAX_ROUNDS = 5  # a value may combine several names, of which the first error shows only one


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """The result of loading a file, with the variables that it needs. `values` may contain secrets: never log it."""

    loaded: Loaded | None
    errors: tuple[ConfigError, ...] = ()
    warnings: tuple[ConfigError, ...] = ()
    unset: tuple[str, ...] = ()  # needed names without a value here
    values: Mapping[str, str] = field(default_factory=dict, repr=False)  # of names that were looked up; may be secrets
    missing: tuple[str, ...] = ()  # names that were looked up and have no value here


def dry_run(
    data: bytes,
    registries: Registries,
    environ: Mapping[str, str],
    *,
    file: str,
    assume_placeholders: bool = False,
    opens_files: bool = True,
) -> DryRun:
    """Load a file; return its configuration or its errors. Never raise `ConfigErrors`."""
    runner = _Runner(data, registries, file, opens_files)
    first = runner.load(environ)
    completed, placeholders = runner.with_placeholders(first, environ)
    return _dry_run(completed if assume_placeholders else first, unset=tuple(placeholders))


def load_once(
    data: bytes, registries: Registries, environ: Mapping[str, str], *, file: str, opens_files: bool = True
) -> DryRun:
    """Load a file without finding out which names are needed: every unset name is an error."""
    return _dry_run(_Runner(data, registries, file, opens_files).load(environ))


def _dry_run(attempt: "_Attempt", *, unset: tuple[str, ...] = ()) -> DryRun:
    return DryRun(
        loaded=attempt.loaded,
        errors=attempt.errors,
        warnings=attempt.warnings,
        unset=unset,
        values=attempt.environment.used,
        missing=tuple(attempt.environment.missing),
    )


class _RecordingEnvironment(Mapping[str, str]):
    """Environment variables; records which of them were looked up."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self.used: dict[str, str] = {}
        self.missing: dict[str, None] = {}  # a set in insertion order
        self._values = values

    def __getitem__(self, name: str) -> str:
        value = self._values.get(name)
        if not value:  # an empty variable counts as unset
            self.missing[name] = None
            raise KeyError(name)
        self.used[name] = value
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


@dataclass(frozen=True, slots=True)
class _Attempt:
    environment: _RecordingEnvironment
    loaded: Loaded | None
    errors: tuple[ConfigError, ...] = ()
    warnings: tuple[ConfigError, ...] = ()

    def has_other_errors_than(self, other: "_Attempt") -> bool:
        """Return whether there are as many errors, but different ones: then one missing name hid another."""
        is_as_many = len(self.errors) == len(other.errors)
        return is_as_many and set(map(str, self.errors)) != set(map(str, other.errors))


@dataclass(frozen=True, slots=True)
class _Runner:
    data: bytes
    registries: Registries
    file: str
    opens_files: bool

    def load(self, environ: Mapping[str, str]) -> _Attempt:
        environment = _RecordingEnvironment(environ)
        try:
            loaded = loader.load(self.data, self.registries, environment, file=self.file, opens_files=self.opens_files)
        except ConfigErrors as problems:
            return _Attempt(environment, None, problems.errors, problems.warnings)
        return _Attempt(environment, loaded, (), loaded.warnings)

    def with_placeholders(self, best: _Attempt, environ: Mapping[str, str]) -> tuple[_Attempt, dict[str, str]]:
        """Return the best attempt with placeholder values for unset names, and these values."""
        placeholders: dict[str, str] = {}
        for _ in range(_MAX_ROUNDS):
            before = best
            for name in best.environment.missing if best.errors else ():
                better = self._with_one_more_placeholder(name, {**environ, **placeholders}, best)
                if better is not None:
                    best, placeholders[name] = better
            if best is before:
                break
        return best, placeholders

    def _with_one_more_placeholder(
        self, name: str, environ: Mapping[str, str], best: _Attempt
    ) -> tuple[_Attempt, str] | None:
        """Return the attempt with a value for one more name, and the value; None if no value improves the result."""
        attempts = [
            (self.load({**environ, name: candidate}), candidate)
            for candidate in (candidate.format(name) for candidate in _PLACEHOLDER_FORMATS)
        ]
        better = [candidate for candidate in attempts if len(candidate[0].errors) < len(best.errors)]
        if better:  # prefer a value that fits: a wrong one causes warnings
            return min(better, key=lambda candidate: (len(candidate[0].errors), len(candidate[0].warnings)))
        return next((candidate for candidate in attempts if candidate[0].has_other_errors_than(best)), None)
