"""Tries a `maintenance.yaml` where it does not run: what is wrong with it, and what only a variable keeps it from.

    found = attempt(data, registries, os.environ, file="maintenance.yaml", assume=True)
    found.unset                      # names that this file needs, and that have no value here
    found.loaded                     # None if `found.errors` has something

A `${NAME}` that is not set on a desk may well be set in the pod. Which names these are is found by trying: a name is
needed if the file has fewer errors, or others, as soon as it has a value. So it does not matter in which of its forms a
`${…}` stands, and one that has a default is not missed. With `assume` such names get a value that fits where they
stand, as far as there is one; without, that they have none stays an error.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from haulout.errors import ConfigError, ConfigErrors
from haulout.profiles import config
from haulout.profiles.config import Loaded, Registries

# One of these fits most options: a text, a duration, a number, a truth value, a time of day, an address, a server.
_STAND_INS = ("value-of-{}", "1m", "1", "true", "12:00", "https://{}.invalid", "{}.invalid:25")
_MOST_ROUNDS = 5  # a value may be made of several names, of which only the first is missed at first


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What came of loading a file."""

    loaded: Loaded | None
    errors: tuple[ConfigError, ...] = ()
    warnings: tuple[ConfigError, ...] = ()
    unset: tuple[str, ...] = ()  # names that are needed, and have no value here
    values: Mapping[str, str] = field(default_factory=dict, repr=False)  # of names that were looked up: maybe secrets
    missed: tuple[str, ...] = ()  # names that were looked up, and have no value here


def attempt(
    data: bytes,
    registries: Registries,
    environ: Mapping[str, str],
    *,
    file: str,
    assume: bool = False,
    opens_files: bool = True,
) -> Trial:
    """Return what comes of loading a file; whatever is wrong with it is in there."""
    trying = _Trying(data, registries, file, opens_files)
    first = trying.load(environ)
    last, stand_ins = trying.completed(first, environ)
    return _trial(last if assume else first, unset=tuple(stand_ins))


def load(
    data: bytes, registries: Registries, environ: Mapping[str, str], *, file: str, opens_files: bool = True
) -> Trial:
    """Return the same, without trying which names are needed: all that have no value are told."""
    return _trial(_Trying(data, registries, file, opens_files).load(environ))


def _trial(told: "_Attempt", *, unset: tuple[str, ...] = ()) -> Trial:
    return Trial(
        loaded=told.loaded,
        errors=told.errors,
        warnings=told.warnings,
        unset=unset,
        values=told.environment.found,
        missed=tuple(told.environment.missed),
    )


class _Environment(Mapping[str, str]):
    """Variables, and which of them were asked for."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self.found: dict[str, str] = {}
        self.missed: dict[str, None] = {}  # a set with an order
        self._values = values

    def __getitem__(self, name: str) -> str:
        value = self._values.get(name)
        if not value:  # an empty variable is none
            self.missed[name] = None
            raise KeyError(name)
        self.found[name] = value
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


@dataclass(frozen=True, slots=True)
class _Attempt:
    environment: _Environment
    loaded: Loaded | None
    errors: tuple[ConfigError, ...] = ()
    warnings: tuple[ConfigError, ...] = ()

    def has_others_than(self, other: "_Attempt") -> bool:
        """Tell whether there are as many errors, but others: then one thing was missed behind another."""
        is_as_many = len(self.errors) == len(other.errors)
        return is_as_many and set(map(str, self.errors)) != set(map(str, other.errors))


@dataclass(frozen=True, slots=True)
class _Trying:
    data: bytes
    registries: Registries
    file: str
    opens_files: bool

    def load(self, environ: Mapping[str, str]) -> _Attempt:
        environment = _Environment(environ)
        try:
            loaded = config.load(self.data, self.registries, environment, file=self.file, opens_files=self.opens_files)
        except ConfigErrors as problems:
            return _Attempt(environment, None, problems.errors, problems.warnings)
        return _Attempt(environment, loaded, (), loaded.warnings)

    def completed(self, found: _Attempt, environ: Mapping[str, str]) -> tuple[_Attempt, dict[str, str]]:
        """Return what comes of it with values for the names that are missed, and these values."""
        stand_ins: dict[str, str] = {}
        for _ in range(_MOST_ROUNDS):
            before = found
            for name in found.environment.missed if found.errors else ():
                better = self._with_one_more(name, {**environ, **stand_ins}, found)
                if better is not None:
                    found, stand_ins[name] = better
            if found is before:
                break
        return found, stand_ins

    def _with_one_more(self, name: str, environ: Mapping[str, str], found: _Attempt) -> tuple[_Attempt, str] | None:
        """Return what comes of a value for one more name, and the value; None if none makes it better."""
        tried = [(self.load({**environ, name: it}), it) for it in (it.format(name) for it in _STAND_INS)]
        better = [it for it in tried if len(it[0].errors) < len(found.errors)]
        if better:  # and of these one that fits: what does not is a warning, too
            return min(better, key=lambda it: (len(it[0].errors), len(it[0].warnings)))
        return next((it for it in tried if it[0].has_others_than(found)), None)
