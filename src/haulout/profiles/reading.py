"""Reads values of a file into the dataclasses of `options`, and notes all that is wrong on the way.

    reading = Reading(file="maintenance.yaml", resolver=Resolver(root, environ))
    plugin = reading.read(HasLabel, value, key="instances.check[0].config")     # None if something is wrong
    reading.wrong("instances.check[0].type", "expected …")                       # what only the caller can see

A complaint names a key; the line is that of the key, or of what it would stand in. What a `${…}` has become is never
part of a complaint: it may be a secret.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Mapping as Dictionary
from dataclasses import MISSING, dataclass
from datetime import timedelta
from typing import Any, TypeVar, cast

from haulout.core import marked, shaped
from haulout.core.shaped import Form
from haulout.errors import ConfigError, ConfigErrors
from haulout.profiles import coercion, dialect, files, interpolation
from haulout.profiles.coercion import Misfit
from haulout.profiles.dialect import Mapping, Scalar, Sequence, Value, path
from haulout.profiles.interpolation import Dynamic, Resolver, Unresolved
from haulout.profiles.options import RAW, REST, Option, choices, item_type, options_of, value_type

T = TypeVar("T")
Entries = Dictionary[str, dialect.Entry]

_WRONG: Any = object()  # instead of a value: the problem has been told
_SCALARS: dict[Any, Callable[[dialect.Plain], Any]] = {
    int: coercion.whole,
    float: coercion.number,
    bool: coercion.boolean,
}
_EXPECTED: dict[Any, str] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    timedelta: coercion.DURATION,
}


def read(
    cls: type[T], data: bytes | str, *, file: str = "config", environ: Dictionary[str, str] | None = None
) -> tuple[T, tuple[ConfigError, ...]]:
    """Return the options that a YAML text holds, and warnings; `ConfigErrors` has all that is wrong."""
    root, reading = opened(data.encode() if isinstance(data, str) else data, file=file, environ=environ or {})
    found = reading.read(cls, root, key="")
    if reading.errors or found is None:
        raise ConfigErrors(reading.errors)
    return found, tuple(reading.warnings)


def opened(
    data: bytes, *, file: str, environ: Dictionary[str, str], opens_files: bool = True
) -> tuple[Value | None, "Reading"]:
    """Return the root of a file, and what reads from it; raises `ConfigErrors`."""
    document = dialect.parse(data, file=file)
    root, errors = document.root, list[ConfigError]()
    if root is not None:
        root, errors = interpolation.prepared(root, file=file)
    if errors:
        raise ConfigErrors(errors)
    reading = Reading(file=file, resolver=Resolver(root, environ), opens_files=opens_files)
    reading.warnings.extend(document.warnings)
    return root, reading


@dataclass(frozen=True, slots=True)
class _Single:
    """A single value, and where it came from."""

    value: dialect.Plain
    written: str
    dynamic: Dynamic | None = None
    text: str | None = None  # of a `${…}`, before it was read as a value

    @property
    def found(self) -> str:
        """Return what it is, for people; never what a `${…}` has become."""
        if self.dynamic:
            return f"what {self.dynamic.written} stands for"
        return dialect.described(Scalar(line=0, column=0, value=self.value, written=self.written))


class Reading:
    """Reads from one file."""

    def __init__(self, *, file: str, resolver: Resolver, opens_files: bool = True) -> None:
        self.errors: list[ConfigError] = []
        self.warnings: list[ConfigError] = []
        self._file = file
        self.resolver = resolver
        self._lines: dict[str, int] = {}
        self._opens_files = opens_files
        self._partly = False

    def wrong(self, key: str, problem: str) -> None:
        """Note what is wrong with a key."""
        self.errors.append(self._complaint(key, problem))

    def warn(self, key: str, problem: str) -> None:
        """Note what is probably not meant."""
        self.warnings.append(self._complaint(key, problem))

    def line_of(self, key: str) -> int | None:
        """Return the line of a key, or of what it would stand in."""
        return marked.line_at(self._lines, key) or self._lines.get("")

    def read(self, cls: type[T], value: Value | None, *, key: str) -> T | None:
        """Return an instance of an options class, or None: then something is wrong with it."""
        known = len(self.errors)
        entries = self._entries(value, key)
        if entries is None:
            return None
        values = self._values(cls, entries, key)
        if len(self.errors) > known:
            self._ask_about_the_rest(cls, values, key, known)
            return None
        try:
            instance = cls(**{name: found for name, found in values.items() if found is not MISSING})
        except ValueError as error:
            self.wrong(key, str(error))
            return None
        self._ask(instance, key)
        return instance if len(self.errors) == known else None

    def read_partly(self, cls: type[T], value: Value | None, *, key: str, also: Iterable[str] = ()) -> T:
        """Return an instance even if something is wrong with it: then it has None there, or a default.

        So a reader can go on and find out what else is wrong. Keys in `also` are known to somebody else.
        """
        before, self._partly = self._partly, True
        known = len(self.errors)
        entries = self._entries(value, key)
        told = len(self.errors)
        values = self._values(cls, entries or {}, key, also=also)
        if entries is None:  # what it lacks is no news
            del self.errors[told:]
        self._partly = before
        defaults = {each.field: None if each.default is MISSING else each.default for each in options_of(cls)}
        is_missed = {name for name, found in values.items() if found is MISSING or found is _WRONG}
        instance = cls(**{name: defaults[name] if name in is_missed else found for name, found in values.items()})
        if len(self.errors) == known:
            self._ask(instance, key)
        return instance

    def _values(self, cls: type, entries: Entries, key: str, *, also: Iterable[str] = ()) -> dict[str, Any]:
        options = options_of(cls)
        self._warn_of_unknown(entries, options, key, also)
        return {each.field: self._option(each, entries, options, key) for each in options}

    def _ask(self, instance: Any, key: str) -> None:
        for name, problem in _told(instance, "problems"):
            self.wrong(path(key, name), problem)
        for hook in ("warnings", "template_problems"):
            for name, problem in _told(instance, hook):
                self.warn(path(key, name), problem)
        for name, problem in files.broken(instance) if self._opens_files else ():
            self.warn(path(key, name), f"{problem}; until that is mended nothing passes that needs the file")

    def _ask_about_the_rest(self, cls: type, values: Dictionary[str, Any], key: str, known: int) -> None:
        """Note what else is wrong with an instance that cannot be built, so that one look tells all of it.

        Defaults stand for the options that are wrong; what `problems` says about these is not noted again. A required
        option has no default, so nothing more is asked if it is anything but a text.
        """
        told = [it.key or "" for it in self.errors[known:]]
        wrong = [it for it in options_of(cls) if any(_is_at(path(key, it.key), each) for each in told)]
        if any(it.default is MISSING and it.type is not str for it in wrong):
            return
        defaults = {it.field: "" if it.default is MISSING else it.default for it in wrong}
        found = {name: value for name, value in values.items() if value is not MISSING}
        for name, problem in _told(cls(**(found | defaults)), "problems"):
            if not any(_is_at(path(key, it.key), path(key, name)) for it in wrong):
                self.wrong(path(key, name), problem)

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
            self.wrong(at, f"expected {_expected(option)}, found nothing")
        return found

    def _optional(self, option: Option, value: Value | None, key: str) -> Any:
        is_nothing = value is None or (isinstance(value, Scalar) and value.value is None)
        if is_nothing:
            # Go makes the objects that a file does not mention, so what they require is missed there.
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
            read = self.read_partly if self._partly else self.read
            return read(cast("type", kind), value, key=key)
        if kind is Any and option.kind is None:
            return self._plain(value, key)
        single = self._single(value, key, _expected_of(kind, option))
        return _WRONG if single is _WRONG else self._scalar(kind, single, key, option)

    def _list(self, item: Any, value: Value | None, key: str, option: Option) -> Any:
        settled = self._settled(value, key)
        if settled is _WRONG:
            return _WRONG
        match settled:
            case Sequence(items=found):
                pass
            case Scalar(value=None) | None:
                found = ()
            case Mapping():
                self.warn(key, "expected a list, found a mapping, which counts as an empty list")
                found = ()
            case _:
                found = (cast("Value", value),)
        if option.required and not found:
            self.wrong(key, f"expected {_expected(option)}, found an empty list")
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
            self.wrong(key, f"expected {_expected(option)}, found an empty one")
        plain = dataclasses.replace(option, required=False)
        return {name: self._typed(kind, entry.value, path(key, name), plain) for name, entry in entries.items()}

    def _entries(self, value: Value | None, key: str) -> Entries | None:
        settled = self._settled(value, key)
        if value is not None:
            self._lines.setdefault(key, value.line)
        match settled:
            case Mapping(entries=entries):
                return entries
            case None | Scalar(value=None):
                return {}
            case Sequence():
                self.warn(key, "expected a mapping, found a list, which counts as an empty mapping")
                return {}
            case Scalar():
                found = f"what {value.written} stands for" if isinstance(value, Dynamic) else dialect.described(settled)
                self.wrong(key, f"expected a mapping, found {found}")
        return None

    def _plain(self, value: Value | None, key: str) -> Any:
        settled = self._settled(value, key)
        match settled:
            case Mapping(entries=entries):
                return {name: self._plain(entry.value, path(key, name)) for name, entry in entries.items()}
            case Sequence(items=items):
                return [self._plain(each, f"{key}[{at}]") for at, each in enumerate(items)]
            case Scalar():
                return settled.value
        return None

    def _settled(self, value: Value | None, key: str) -> Any:
        if value is None:
            return None
        try:
            return self.resolver.settled(value).value
        except Unresolved as error:
            self._lines.setdefault(key, value.line)
            self.wrong(key, str(error))
            return _WRONG

    def _single(self, value: Value | None, key: str, expected: str) -> Any:
        if value is None:
            return _Single(None, "")
        try:
            settled = self.resolver.settled(value)
        except Unresolved as error:
            self.wrong(key, str(error))
            return _WRONG
        dynamic = value if isinstance(value, Dynamic) else None
        if isinstance(settled.value, Scalar):
            return _Single(settled.value.value, settled.value.written, dynamic, settled.text)
        if settled.text is not None:
            return _Single(settled.text, settled.text, dynamic, settled.text)
        self.wrong(key, f"expected {expected}, found {dialect.described(settled.value)}")
        return _WRONG

    def _scalar(self, kind: Any, single: _Single, key: str, option: Option) -> Any:
        if kind is str or isinstance(option.kind, Form) or choices(kind) is not None:
            return self._text(kind, single, key, option)
        try:
            found = self._converted(kind, single)
        except Misfit as error:
            self.wrong(key, f"expected {error}, found {single.found}")
            return _WRONG
        if kind is timedelta and found and not single.dynamic and isinstance(single.value, int | float):
            self.warn(key, f"found {single.written} without a unit, which means seconds: write {single.written}s if so")
        if option.required and kind is not bool and not found:
            self.wrong(key, f"expected {_expected(option)} other than zero, found {single.found}")
            return _WRONG
        return found

    def _converted(self, kind: Any, single: _Single) -> Any:
        if kind is timedelta:
            return coercion.span(single.value, dynamic=single.dynamic is not None)
        convert = _SCALARS[kind]
        try:
            return convert(single.value)
        except Misfit:
            if single.text is None:
                raise
            # `1` out of a `${…}` is a number, which Go does not take for true.
            return convert(single.text)

    def _text(self, kind: Any, single: _Single, key: str, option: Option) -> Any:
        text = dialect.text_of(single.value)
        if single.value is None and single.dynamic is None:
            text = ""
        self._warn_of_change(single, text, key)
        if option.required and not text:
            self.wrong(key, f"expected {_expected(option)}, found an empty text")
            return _WRONG
        if isinstance(option.kind, Form):
            return self._formed(option.kind, text, single, key)
        texts = choices(kind)
        if texts is None:
            return text
        if text not in texts:
            hint = "" if single.dynamic else shaped.meant(text, texts)
            self.wrong(key, f"expected {shaped.listed(list(texts))}, found {single.found}{hint}")
            return _WRONG
        return texts[text]

    def _formed(self, form: Form, text: str, single: _Single, key: str) -> Any:
        try:
            return form.check(text)
        except ValueError as error:
            reason = f" ({error})" if str(error) and not single.dynamic else ""
            self.wrong(key, f"expected {form.expected}, found {single.found}{reason}")
            return _WRONG

    def _warn_of_unknown(self, entries: Entries, options: tuple[Option, ...], key: str, also: Iterable[str]) -> None:
        if any(each.kind is REST for each in options):
            return
        known = [each.key for each in options]
        for name, entry in entries.items():
            if name not in known and name not in also:
                at = path(key, name)
                self._lines[at] = entry.line
                self.warn(at, f"there is no such key, so it is ignored{shaped.meant(name, known)}")

    def _warn_of_change(self, single: _Single, text: str, key: str) -> None:
        if isinstance(single.value, str) or single.value is None:
            return
        if single.dynamic is None and single.written != text:
            written = dialect.shortened(single.written)
            self.warn(key, f"{written} is read as {text}; if it is meant as it stands, put it in quotes: '{written}'")
        elif single.dynamic is not None and single.text not in {None, text}:
            self.warn(
                key,
                f"{single.dynamic.written} stands for something that is read as {_kind_of(single.value)} and written "
                "anew, so the text changes; quotes around the value that it stands for keep it",
            )

    def _complaint(self, key: str, problem: str) -> ConfigError:
        return ConfigError(problem, file=self._file, line=self.line_of(key), key=key or None)


def _is_at(key: str, inner: str) -> bool:
    """Tell whether `inner` is `key`, or a key inside of it."""
    return inner == key or inner.startswith((f"{key}.", f"{key}["))


def _told(instance: Any, hook: str) -> Iterator[tuple[str, str]]:
    tell = getattr(instance, hook, None)
    if callable(tell):
        yield from tell()


def _expected(option: Option) -> str:
    item = item_type(option.type)
    if item:
        return f"a list of {_expected_of(item, option).removeprefix('a ')}s" if item is str else "a list"
    return _expected_of(option.type, option)


def _expected_of(kind: Any, option: Option) -> str:
    if isinstance(option.kind, Form):
        return option.kind.expected
    texts = choices(kind)
    if texts:
        return shaped.listed(list(texts))
    return _EXPECTED.get(kind, "a mapping")


def _kind_of(value: dialect.Plain) -> str:
    return "true or false" if isinstance(value, bool) else "a number"
