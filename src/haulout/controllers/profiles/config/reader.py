"""Reads values of a file into the dataclasses of `options`, and collects all errors.

    reader = ConfigReader(file="maintenance.yaml", resolver=Resolver(root, environ))
    plugin = reader.read(HasLabel, value, key="instances.check[0].config")  # None if there are errors
    reader.add_error("instances.check[0].type", "expected …")               # for errors that only the caller can find

An error names a key and its line, or the line of the enclosing value if the key is missing. The value of a `${…}` never
appears in an error: it may be a secret.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Mapping as Dictionary
from dataclasses import MISSING, dataclass
from datetime import timedelta
from typing import Any, TypeVar, cast

from haulout.compat.ucfg import goyaml, interpolation, scalars
from haulout.compat.ucfg.goyaml import Mapping, Scalar, Sequence, Value, path
from haulout.compat.ucfg.interpolation import DynamicValue, Resolver, UnresolvedVariable
from haulout.compat.ucfg.scalars import ConversionError
from haulout.controllers.profiles.config import referenced_files
from haulout.controllers.profiles.config.options import RAW, REST, Option, choices, item_type, options_of, value_type
from haulout.core import yaml_decoder, yaml_nodes
from haulout.core.yaml_decoder import TextFormat
from haulout.errors import ConfigError, ConfigErrors

T = TypeVar("T")
Entries = Dictionary[str, goyaml.Entry]

_WRONG: Any = object()  # replaces a value whose error has been reported
_SCALARS: dict[Any, Callable[[goyaml.Plain], Any]] = {
    int: scalars.integer,
    float: scalars.number,
    bool: scalars.boolean,
}
_EXPECTED: dict[Any, str] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    timedelta: scalars.DURATION,
}


def read(
    cls: type[T], data: bytes | str, *, file: str = "config", environ: Dictionary[str, str] | None = None
) -> tuple[T, tuple[ConfigError, ...]]:
    """Return the options in a YAML text, and warnings. Raise `ConfigErrors` with all errors."""
    root, reading = open_reader(data.encode() if isinstance(data, str) else data, file=file, environ=environ or {})
    found = reading.read(cls, root, key="")
    if reading.errors or found is None:
        raise ConfigErrors(reading.errors)
    return found, tuple(reading.warnings)


def open_reader(
    data: bytes, *, file: str, environ: Dictionary[str, str], opens_files: bool = True
) -> tuple[Value | None, "ConfigReader"]:
    """Return the root of a file and a reader for it. Raise `ConfigErrors`."""
    document = goyaml.parse(data, file=file)
    root, errors = document.root, list[ConfigError]()
    if root is not None:
        root, errors = interpolation.prepare(root, file=file)
    if errors:
        raise ConfigErrors(errors)
    reading = ConfigReader(file=file, resolver=Resolver(root, environ), opens_files=opens_files)
    reading.warnings.extend(document.warnings)
    return root, reading


@dataclass(frozen=True, slots=True)
class _Single:
    """A scalar and its origin, which decides how it is converted and what an error may show."""

    value: goyaml.Plain
    written: str
    dynamic: DynamicValue | None = None
    text: str | None = None  # of a `${…}`, before it was parsed as a value

    @property
    def description(self) -> str:
        """A description for people; never the value of a `${…}`."""
        if self.dynamic:
            return f"the value of {self.dynamic.written}"
        return goyaml.describe(Scalar(line=0, column=0, value=self.value, written=self.written))


class ConfigReader:
    """Reads values of one file, and collects errors and warnings with their lines.

    It never raises for a wrong value.
    """

    def __init__(self, *, file: str, resolver: Resolver, opens_files: bool = True) -> None:
        self.errors: list[ConfigError] = []
        self.warnings: list[ConfigError] = []
        self._file = file
        self.resolver = resolver
        self._lines: dict[str, int] = {}
        self._opens_files = opens_files
        self._is_partial = False

    def add_error(self, key: str, problem: str) -> None:
        self.errors.append(self._problem(key, problem))

    def add_warning(self, key: str, problem: str) -> None:
        self.warnings.append(self._problem(key, problem))

    def line_of(self, key: str) -> int | None:
        """Return the line of a key, or of the enclosing value."""
        return yaml_nodes.line_at(self._lines, key) or self._lines.get("")

    def read(self, cls: type[T], value: Value | None, *, key: str) -> T | None:
        """Return an instance of an options class, or None if there are errors."""
        known = len(self.errors)
        entries = self._entries(value, key)
        if entries is None:
            return None
        values = self._values(cls, entries, key)
        if len(self.errors) > known:
            self._check_remaining(cls, values, key, known)
            return None
        try:
            instance = cls(**{name: found for name, found in values.items() if found is not MISSING})
        except ValueError as error:
            self.add_error(key, str(error))
            return None
        self._check_instance(instance, key)
        return instance if len(self.errors) == known else None

    def read_partially(self, cls: type[T], value: Value | None, *, key: str, also: Iterable[str] = ()) -> T:
        """Return an instance even if there are errors; the affected fields are None or have their defaults.

        So the caller can go on and find further errors. Keys in `also` are known to another reader.
        """
        before, self._is_partial = self._is_partial, True
        known_errors = len(self.errors)
        entries = self._entries(value, key)
        error_count = len(self.errors)
        values = self._values(cls, entries or {}, key, also=also)
        if entries is None:  # the error about the value itself is enough: do not report its missing options
            del self.errors[error_count:]
        self._is_partial = before
        defaults = {each.field: None if each.default is MISSING else each.default for each in options_of(cls)}
        is_missed = {name for name, found in values.items() if found is MISSING or found is _WRONG}
        instance = cls(**{name: defaults[name] if name in is_missed else found for name, found in values.items()})
        if len(self.errors) == known_errors:
            self._check_instance(instance, key)
        return instance

    def _values(self, cls: type, entries: Entries, key: str, *, also: Iterable[str] = ()) -> dict[str, Any]:
        options = options_of(cls)
        self._warn_about_unknown_keys(entries, options, key, also)
        return {each.field: self._option(each, entries, options, key) for each in options}

    def _check_instance(self, instance: Any, key: str) -> None:
        for name, problem in _problems_from_hook(instance, "problems"):
            self.add_error(path(key, name), problem)
        for hook in ("warnings", "template_problems"):
            for name, problem in _problems_from_hook(instance, hook):
                self.add_warning(path(key, name), problem)
        for name, problem in referenced_files.problems_in_files(instance) if self._opens_files else ():
            self.add_warning(path(key, name), f"{problem}; until this is fixed, checks that need the file do not pass")

    def _check_remaining(self, cls: type, values: Dictionary[str, Any], key: str, known: int) -> None:
        """Report the errors in the remaining options of an instance that cannot be built, so that one run reports all.

        Options with errors get their defaults, and what `problems` yields about these is dropped. A required option has
        no default; unless it is a text, no further check is made.
        """
        error_keys = [item.key or "" for item in self.errors[known:]]
        wrong_options = [
            item for item in options_of(cls) if any(_is_at(path(key, item.key), each) for each in error_keys)
        ]
        if any(item.default is MISSING and item.type is not str for item in wrong_options):
            return
        defaults = {item.field: "" if item.default is MISSING else item.default for item in wrong_options}
        found = {name: value for name, value in values.items() if value is not MISSING}
        for name, problem in _problems_from_hook(cls(**(found | defaults)), "problems"):
            if not any(_is_at(path(key, item.key), path(key, name)) for item in wrong_options):
                self.add_error(path(key, name), problem)

    def _option(self, option: Option, entries: Entries, options: tuple[Option, ...], key: str) -> Any:
        if option.kind is REST:
            known = {each.key for each in options}
            return {
                name: self._plain(entry.value, path(key, name)) for name, entry in entries.items() if name not in known
            }
        at = path(key, option.key)
        entry = entries.get(option.key)
        if entry is not None:
            self._lines[at] = entry.line
        if option.kind is RAW:
            return entry.value if entry else None
        found = self._optional(option, entry.value if entry else None, at)
        if option.required and (found is MISSING or found is None):
            self.add_error(at, f"expected {_expected(option)}, found nothing")
        return found

    def _optional(self, option: Option, value: Value | None, key: str) -> Any:
        is_nothing = value is None or (isinstance(value, Scalar) and value.value is None)
        if is_nothing:
            # Go creates objects that a file does not mention, and reports their missing required options.
            if dataclasses.is_dataclass(option.type) and not option.optional:
                return self._typed(option.type, value, key, option)
            return option.default
        return self._typed(option.type, cast("Value", value), key, option)

    def _typed(self, kind: Any, value: Value | None, key: str, option: Option) -> Any:
        if value is not None:
            self._lines.setdefault(key, value.line)
        if item := item_type(kind):
            return self._list(item, value, key, option)
        if (value_kind := value_type(kind)) and option.kind is None:
            return self._mapping(value_kind, value, key, option)
        if dataclasses.is_dataclass(kind) and option.kind is None:
            read = self.read_partially if self._is_partial else self.read
            return read(cast("type", kind), value, key=key)
        if kind is Any and option.kind is None:
            return self._plain(value, key)
        single = self._single(value, key, _expected_of(kind, option))
        return _WRONG if single is _WRONG else self._scalar(kind, single, key, option)

    def _list(self, item: Any, value: Value | None, key: str, option: Option) -> Any:
        settled = self._resolve(value, key)
        if settled is _WRONG:
            return _WRONG
        match settled:
            case Sequence(items=found):
                pass
            case Scalar(value=None) | None:
                found = ()
            case Mapping():
                self.add_warning(key, "expected a list, found a mapping, which counts as an empty list")
                found = ()
            case _:
                found = (cast("Value", value),)
        if option.required and not found:
            self.add_error(key, f"expected {_expected(option)}, found an empty list")
            return _WRONG
        return tuple(self._item(item, each, f"{key}[{at}]", option) for at, each in enumerate(found))

    def _item(self, kind: Any, value: Value, key: str, option: Option) -> Any:
        is_nothing = isinstance(value, Scalar) and value.value is None
        if is_nothing and kind is str and option.kind is None:
            return ""
        return self._typed(kind, value, key, option)

    def _mapping(self, kind: Any, value: Value | None, key: str, option: Option) -> Any:
        entries = self._entries(value, key)
        if entries is None:
            return _WRONG
        if option.required and not entries:
            self.add_error(key, f"expected {_expected(option)}, found an empty one")
        plain = dataclasses.replace(option, required=False)
        return {name: self._typed(kind, entry.value, path(key, name), plain) for name, entry in entries.items()}

    def _entries(self, value: Value | None, key: str) -> Entries | None:
        settled = self._resolve(value, key)
        if value is not None:
            self._lines.setdefault(key, value.line)
        match settled:
            case Mapping(entries=entries):
                return entries
            case None | Scalar(value=None):
                return {}
            case Sequence():
                self.add_warning(key, "expected a mapping, found a list, which counts as an empty mapping")
                return {}
            case Scalar():
                found = f"the value of {value.written}" if isinstance(value, DynamicValue) else goyaml.describe(settled)
                self.add_error(key, f"expected a mapping, found {found}")
        return None

    def _plain(self, value: Value | None, key: str) -> Any:
        settled = self._resolve(value, key)
        match settled:
            case Mapping(entries=entries):
                return {name: self._plain(entry.value, path(key, name)) for name, entry in entries.items()}
            case Sequence(items=items):
                return [self._plain(each, f"{key}[{at}]") for at, each in enumerate(items)]
            case Scalar():
                return settled.value
        return None

    def _resolve(self, value: Value | None, key: str) -> Any:
        if value is None:
            return None
        try:
            return self.resolver.resolve(value).value
        except UnresolvedVariable as error:
            self._lines.setdefault(key, value.line)
            self.add_error(key, str(error))
            return _WRONG

    def _single(self, value: Value | None, key: str, expected: str) -> Any:
        if value is None:
            return _Single(None, "")
        try:
            settled = self.resolver.resolve(value)
        except UnresolvedVariable as error:
            self.add_error(key, str(error))
            return _WRONG
        dynamic = value if isinstance(value, DynamicValue) else None
        if isinstance(settled.value, Scalar):
            return _Single(settled.value.value, settled.value.written, dynamic, settled.text)
        if settled.text is not None:
            return _Single(settled.text, settled.text, dynamic, settled.text)
        self.add_error(key, f"expected {expected}, found {goyaml.describe(settled.value)}")
        return _WRONG

    def _scalar(self, kind: Any, single: _Single, key: str, option: Option) -> Any:
        if kind is str or isinstance(option.kind, TextFormat) or choices(kind) is not None:
            return self._text(kind, single, key, option)
        try:
            found = self._converted(kind, single)
        except ConversionError as error:
            self.add_error(key, f"expected {error}, found {single.description}")
            return _WRONG
        if kind is timedelta and found and not single.dynamic and isinstance(single.value, int | float):
            self.add_warning(
                key, f"found {single.written} without a unit, which means seconds: write {single.written}s if so"
            )
        if option.required and kind is not bool and not found:
            self.add_error(key, f"expected {_expected(option)} other than zero, found {single.description}")
            return _WRONG
        return found

    def _converted(self, kind: Any, single: _Single) -> Any:
        if kind is timedelta:
            return scalars.duration_of(single.value, dynamic=single.dynamic is not None)
        convert = _SCALARS[kind]
        try:
            return convert(single.value)
        except ConversionError:
            if single.text is None:
                raise
            # `1` in a `${…}` is parsed as a number, which Go does not accept as true.
            return convert(single.text)

    def _text(self, kind: Any, single: _Single, key: str, option: Option) -> Any:
        text = goyaml.format_scalar(single.value)
        if single.value is None and single.dynamic is None:
            text = ""
        self._warn_about_changed_text(single, text, key)
        if option.required and not text:
            self.add_error(key, f"expected {_expected(option)}, found an empty text")
            return _WRONG
        if isinstance(option.kind, TextFormat):
            return self._parse_form(option.kind, text, single, key)
        texts = choices(kind)
        if texts is None:
            return text
        if text not in texts:
            hint = "" if single.dynamic else yaml_decoder.did_you_mean(text, texts)
            self.add_error(key, f"expected {yaml_decoder.join_with_or(list(texts))}, found {single.description}{hint}")
            return _WRONG
        return texts[text]

    def _parse_form(self, form: TextFormat, text: str, single: _Single, key: str) -> Any:
        try:
            return form.check(text)
        except ValueError as error:
            reason = f" ({error})" if str(error) and not single.dynamic else ""
            self.add_error(key, f"expected {form.expected}, found {single.description}{reason}")
            return _WRONG

    def _warn_about_unknown_keys(
        self, entries: Entries, options: tuple[Option, ...], key: str, also: Iterable[str]
    ) -> None:
        if any(each.kind is REST for each in options):
            return
        known = [each.key for each in options]
        for name, entry in entries.items():
            if name not in known and name not in also:
                at = path(key, name)
                self._lines[at] = entry.line
                self.add_warning(at, f"there is no such key, so it is ignored{yaml_decoder.did_you_mean(name, known)}")

    def _warn_about_changed_text(self, single: _Single, text: str, key: str) -> None:
        if isinstance(single.value, str) or single.value is None:
            return
        if single.dynamic is None and single.written != text:
            written = goyaml.shorten(single.written)
            self.add_warning(key, f"{written} is read as {text}; to keep it unchanged, put it in quotes: '{written}'")
        elif single.dynamic is not None and single.text not in {None, text}:
            self.add_warning(
                key,
                f"the value of {single.dynamic.written} is parsed as {_kind_of(single.value)} and formatted again, so "
                "its text changes; put the value in quotes to keep it",
            )

    def _problem(self, key: str, problem: str) -> ConfigError:
        return ConfigError(problem, file=self._file, line=self.line_of(key), key=key or None)


def _is_at(key: str, inner: str) -> bool:
    """Return whether `inner` is `key` or a key inside it."""
    return inner == key or inner.startswith((f"{key}.", f"{key}["))


def _problems_from_hook(instance: Any, hook: str) -> Iterator[tuple[str, str]]:
    hook_method = getattr(instance, hook, None)
    if callable(hook_method):
        yield from hook_method()


def _expected(option: Option) -> str:
    item = item_type(option.type)
    if item:
        return f"a list of {_expected_of(item, option).removeprefix('a ')}s" if item is str else "a list"
    return _expected_of(option.type, option)


def _expected_of(kind: Any, option: Option) -> str:
    if isinstance(option.kind, TextFormat):
        return option.kind.expected
    texts = choices(kind)
    if texts:
        return yaml_decoder.join_with_or(list(texts))
    return _EXPECTED.get(kind, "a mapping")


def _kind_of(value: goyaml.Plain) -> str:
    return "true or false" if isinstance(value, bool) else "a number"
