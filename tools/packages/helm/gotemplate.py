"""Writes objects as YAML with Go template expressions, conditions and loops.

    text({"replicas": Expression(".Values.replicas"), "resources": IndentedExpression("toYaml .Values.resources"),
          "paused": Conditional(".Values.paused", True)})

    replicas: {{ .Values.replicas }}
    resources:
      {{- toYaml .Values.resources | nindent 2 }}
    {{- if .Values.paused }}
    paused: true
    {{- end }}

A string may contain expressions, too (`"{{ .Release.Namespace }}-lease"`); it is written in quotes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

_STEP = 2


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression that yields a scalar. The caller quotes it if needed."""

    expression: str


@dataclass(frozen=True, slots=True)
class IndentedExpression:
    """An expression that yields lines of YAML, indented to their position."""

    expression: str


@dataclass(frozen=True, slots=True)
class Conditional:
    """The value of a key, or items of a list, under a condition."""

    condition: str
    then: Any
    otherwise: Any = None
    keyword: str = "if"  # or `with`, or `range`


@dataclass(frozen=True, slots=True)
class Commented:
    """An item of a list, with a comment above."""

    comment: str
    item: Any


def document(node: Any, *, when: str = "") -> str:
    """Return a YAML document, under a condition if one is given."""
    body = f"---\n{text(node)}"
    return f"{{{{- if {when} }}}}\n{body}{{{{- end }}}}\n" if when else body


def text(node: Any) -> str:
    """Return a node as lines of a template."""
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
    # A scalar must stay on one line: a folded one would break inside an expression.
    written: str = yaml.safe_dump(value, width=10_000, default_flow_style=True, allow_unicode=True)
    return written.removesuffix("\n").removesuffix("\n...")
