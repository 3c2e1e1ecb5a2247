"""Writes objects as YAML in which a Helm chart's template language decides, fills in and repeats.

    text({"replicas": Filled(".Values.replicas"), "resources": Inset("toYaml .Values.resources"),
          "paused": When(".Values.paused", True)})

    replicas: {{ .Values.replicas }}
    resources:
      {{- toYaml .Values.resources | nindent 2 }}
    {{- if .Values.paused }}
    paused: true
    {{- end }}

A text may hold expressions, too (`"{{ .Release.Namespace }}-lease"`): it is written in quotes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

_STEP = 2


@dataclass(frozen=True, slots=True)
class Expression:
    """A scalar that an expression yields."""

    expression: str


@dataclass(frozen=True, slots=True)
class IndentedExpression:
    """Lines of YAML that an expression yields, indented to where they are."""

    expression: str


@dataclass(frozen=True, slots=True)
class Conditional:
    """What is there under a condition: the value of a key, or items of a list."""

    condition: str
    then: Any
    otherwise: Any = None
    keyword: str = "if"  # or `with`, or `range`


@dataclass(frozen=True, slots=True)
class Commented:
    """An item of a list, with a comment above it."""

    comment: str
    item: Any


def document(node: Any, *, when: str = "") -> str:
    """Return a document of its own, under a condition if there is one."""
    body = f"---\n{text(node)}"
    return f"{{{{- if {when} }}}}\n{body}{{{{- end }}}}\n" if when else body


def text(node: Any) -> str:
    """Return something as lines of a template."""
    return "".join(f"{line}\n" for line in _lines(node, ""))


def _lines(node: Any, pad: str) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            yield from _entry(key, value, pad)
    else:
        for item in node:
            yield from _item(item, pad)


def _entry(key: str, value: Any, pad: str) -> Iterator[str]:
    if isinstance(value, Conditional):
        yield from _branches(value, pad, lambda branch: _entry(key, branch, pad))
    elif isinstance(value, IndentedExpression):
        yield f"{pad}{key}:"
        yield f"{pad}{' ' * _STEP}{{{{- {value.expression} | nindent {len(pad) + _STEP} }}}}"
    elif isinstance(value, list) and value and all(map(_is_plain, value)):
        yield f"{pad}{_scalar(key)}: [{', '.join(map(_scalar, value))}]"
    elif isinstance(value, dict | list | tuple) and value:
        yield f"{pad}{key}:"
        yield from _lines(value, pad + " " * _STEP)
    else:
        yield f"{pad}{_scalar(key)}: {_scalar(value)}"


def _item(value: Any, pad: str) -> Iterator[str]:
    if isinstance(value, Conditional):
        many = isinstance(value.then, list | tuple)
        yield from _branches(value, pad, lambda branch: _lines(branch, pad) if many else _item(branch, pad))
    elif isinstance(value, Commented):
        yield f"{pad}# {value.comment}"
        yield from _item(value.item, pad)
    elif isinstance(value, IndentedExpression):
        yield f"{pad}{{{{- {value.expression} | nindent {len(pad)} }}}}"
    elif isinstance(value, dict) and value:
        first, *others = _lines(value, pad + " " * _STEP)
        yield f"{pad}- {first.lstrip()}"
        yield from others
    else:
        yield f"{pad}- {_scalar(value)}"


def _branches(value: Conditional, pad: str, write: Any) -> Iterator[str]:
    yield f"{pad}{{{{- {value.keyword} {value.condition} }}}}"
    yield from write(value.then)
    if value.otherwise is not None:
        yield f"{pad}{{{{- else }}}}"
        yield from write(value.otherwise)
    yield f"{pad}{{{{- end }}}}"


def _is_plain(value: Any) -> bool:
    return isinstance(value, str) and "{{" not in value


def _scalar(value: Any) -> str:
    if isinstance(value, Expression):
        return f"{{{{ {value.expression} }}}}"
    if isinstance(value, dict | Sequence) and not value and not isinstance(value, str):
        return "{}" if isinstance(value, dict) else "[]"
    written: str = yaml.safe_dump(value, width=10_000, default_flow_style=True, allow_unicode=True)
    return written.removesuffix("\n").removesuffix("\n...")
