"""Decodes the values of tables generated with Go's text/template: JSON, with markers for Go types that JSON lacks.

`{"$time": "…"}` is a time, `{"$strings": {…}}` a map[string]string, `{"$person": {…}}` a struct with methods, and so
on. The tables were written by a Go program that decodes the same markers into Go types.
"""

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

from haulout.compat.gotemplate.times import DURATION, Moment
from haulout.compat.gotemplate.types import (
    ANY,
    BYTE,
    FLOAT,
    INT,
    INT32,
    STRING,
    Field,
    Kind,
    Method,
    Type,
    Value,
    list_of,
    map_of,
    pointer_to,
    to_typed_value,
)
from haulout.core import duration

STRINGS = map_of(STRING)
STRING_LIST = list_of(STRING)
PERSON = Type("main.Person", Kind.STRUCT)
_FIELDS = {
    "Name": STRING,
    "Age": INT,
    "Tags": STRING_LIST,
    "Labels": STRINGS,
    "Boss": pointer_to(PERSON),
    "Ratio": FLOAT,
    "Any": ANY,
    "Small": INT32,
    "Byte": BYTE,
}


def _getter(name: str) -> Callable[[Any], Any]:
    return lambda raw: raw.get(name)


PERSON.fields.update({name: Field(type_, _getter(name)) for name, type_ in _FIELDS.items()})
PERSON.methods.update(
    Greet=Method(STRING, lambda raw, word: f"{word}, {raw['Name']}", (STRING,)),
    Sum=Method(INT, lambda _, first, second: first + second, (INT, INT)),
    Half=Method(FLOAT, lambda _, number: number / 2, (FLOAT,)),
)


def parse_moment(text: str) -> Moment:
    """Return an RFC 3339 time with nanoseconds."""
    fraction = re.search(r"\.(\d+)", text)
    plain = Moment.from_datetime(datetime.fromisoformat(re.sub(r"\.\d+", "", text)))
    return Moment(plain.seconds, int((fraction[1] if fraction else "0").ljust(9, "0")), plain.offset, plain.zone)


_MARKS: dict[str, Callable[[Any], Any]] = {
    "$time": parse_moment,
    "$duration": lambda raw: Value(DURATION, duration.parse_nanoseconds(raw)),
    "$strings": lambda raw: Value(STRINGS, raw),
    "$list": lambda raw: Value(STRING_LIST, raw),
    "$person": lambda raw: to_typed_value(PERSON, raw),
    "$personptr": lambda raw: to_typed_value(pointer_to(PERSON), raw),
}


def decode_go_value(raw: Any) -> Any:
    """Return the data that raw JSON of a table stands for."""
    if isinstance(raw, list):
        return [decode_go_value(each) for each in raw]
    if not isinstance(raw, dict):
        return raw
    mark = next(iter(raw), "")
    if len(raw) == 1 and mark in _MARKS:
        return _MARKS[mark](raw[mark])
    return {key: decode_go_value(each) for key, each in raw.items()}
