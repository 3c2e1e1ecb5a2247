"""Tries a `maintenance.yaml` where it does not run: what is wrong with it, and what only a variable keeps it from.

    found = attempt(data, registries, os.environ, file="maintenance.yaml", assume=True)
    found.unset                      # names that this file needs, and that have no value here
    found.loaded                     # None if `found.errors` has something

A `${NAME}` that is not set on a desk may well be set in the pod. Which names these are is found by trying: a name is
needed if the file has fewer errors, or others, as soon as it has a value. So it does not matter in which of its forms a
`${…}` stands, and one that has a default is not missed. With `assume_placeholders` such names get a value that fits
where they stand, as far as there is one; without, that they have none stays an error.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from haulout.controllers.profiles.config import loader
from haulout.controllers.profiles.config.loader import Loaded, Registries
from haulout.errors import ConfigError, ConfigErrors

# One of these fits most options: a text, a duration, a number, a truth value, a time of day, an address, a server.
_PLACEHOLDER_FORMATS = ("value-of-{}", "1m", "1", "true", "12:00", "https://{}.invalid", "{}.invalid:25")
_MAX_ROUNDS = 5  # a value may be made of several names, of which only the first is missed at first


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """What came of loading a file."""

    loaded: Loaded | None
    errors: tuple[ConfigError, ...] = ()
    warnings: tuple[ConfigError, ...] = ()
    unset: tuple[str, ...] = ()  # names that are needed, and have no value here
    values: Mapping[str, str] = field(default_factory=dict, repr=False)  # of names that were looked up: maybe secrets
    missing: tuple[str, ...] = ()  # names that were looked up, and have no value here


def dry_run(
    data: bytes,
    registries: Registries,
    environ: Mapping[str, str],
    *,
    file: str,
    assume_placeholders: bool = False,
    opens_files: bool = True,
) -> DryRun:
    """Return what comes of loading a file; whatever is wrong with it is in there."""
    runner = _Runner(data, registries, file, opens_files)
    first = runner.load(environ)
    completed, placeholders = runner.with_placeholders(first, environ)
    return _dry_run(completed if assume_placeholders else first, unset=tuple(placeholders))


def load_once(
    data: bytes, registries: Registries, environ: Mapping[str, str], *, file: str, opens_files: bool = True
) -> DryRun:
    """Return the same, without trying which names are needed: all that have no value are told."""
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
    """Variables, and which of them were asked for."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self.used: dict[str, str] = {}
        self.missing: dict[str, None] = {}  # a set with an order
        self._values = values

    def __getitem__(self, name: str) -> str:
        value = self._values.get(name)
        if not value:  # an empty variable is none
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
        """Tell whether there are as many errors, but others: then one thing was missed behind another."""
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
        """Return what comes of it with values for the names that are missed, and these values."""
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
        """Return what comes of a value for one more name, and the value; None if none makes it better."""
        attempts = [
            (self.load({**environ, name: candidate}), candidate)
            for candidate in (candidate.format(name) for candidate in _PLACEHOLDER_FORMATS)
        ]
        better = [candidate for candidate in attempts if len(candidate[0].errors) < len(best.errors)]
        if better:  # and of these one that fits: what does not is a warning, too
            return min(better, key=lambda candidate: (len(candidate[0].errors), len(candidate[0].warnings)))
        return next((candidate for candidate in attempts if candidate[0].has_other_errors_than(best)), None)
