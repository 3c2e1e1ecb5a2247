"""Redacts files that are not valid YAML, comments, and files of unknown formats, line by line.

The value after a secret name is hidden, including following lines with a deeper indentation. If the value is a
reference or an alias, its definition is hidden, too. Of URLs, only the host is kept.
"""

import re
from collections.abc import Collection, Iterable, Iterator

from haulout.core.redaction.names import is_secret_name
from haulout.core.redaction.values import MIN_VALUE_LENGTH, REDACTED

_MAX_LINE_LENGTH = 10_000  # characters of a line
_NAME_PREFIX = re.compile(r"(['\"]?(?<![\w.-])([\w.-]++)['\"]?\s{0,20}[:=]\s{0,20})")
_ADDRESS = re.compile(r"(?<=://)([^/\s'\",}]+)/[^\s'\",}]*")
_REFERENCES = re.compile(r"\$\{([\w.-]+)|\*([^\s,\]}]+)")
_IS_REFERENCE = re.compile(r"['\"]?\$\{[\w.-]+\}['\"]?[,}\]\s]*|[*|>].*")


def is_secret_option(name: str) -> bool:
    """Return whether an unknown option is secret. A webhook URL is, because everybody who knows it can post to it."""
    return is_secret_name(name) or "webhook" in name.lower()


class FileRedactor:
    """Hides the values of `keys`, and of all secret names. The hidden values are added to `values`."""

    def __init__(self, keys: Collection[str], values: set[str]) -> None:
        self._values = values
        self._keys = {key.lower() for key in keys}

    def redact_comments(self, text: str) -> str:
        """Return the text without secrets in its comments."""
        return "\n".join(map(self._redact_comment, text.split("\n")))

    def redact(self, text: str) -> str:
        """Return the text without anything that may be a secret."""
        lines = [candidate if len(candidate) <= _MAX_LINE_LENGTH else REDACTED for candidate in text.split("\n")]
        targets = {name for line in lines for name in self._referenced_names(line)}
        return "\n".join(self._redact_lines(lines, _definition_pattern(targets)))

    def _redact_comment(self, line: str) -> str:
        at = line.find("#") if line.lstrip().startswith("#") else line.find(" #")
        if at < 0:
            return line
        comment = line[at:]
        return line[:at] + (REDACTED if len(comment) > _MAX_LINE_LENGTH else self._redact_line(comment))

    def _split_at_secret(self, line: str) -> tuple[str, str] | None:
        """Return a line up to the value of its first secret, and that value; None if there is no secret."""
        for match in _NAME_PREFIX.finditer(line):
            if match[2].lower() in self._keys or is_secret_option(match[2]):
                return line[: match.end()], line[match.end() :]
        return None

    def _referenced_names(self, line: str) -> Iterator[str]:
        found = self._split_at_secret(line)
        for names in _REFERENCES.findall(found[1]) if found else ():
            yield from filter(None, names)

    def _redact_lines(self, lines: Iterable[str], definitions: re.Pattern[str]) -> Iterator[str]:
        secret_indent: int | None = None  # lines with a deeper indentation belong to the secret
        for line in lines:
            indent = len(line) - len(line.lstrip())
            if secret_indent is not None and line.strip() and indent > secret_indent:
                self._record_value(line)
                yield " " * indent + REDACTED
                continue
            secret_indent = indent if self._split_at_secret(line) else None
            redacted = self._redact_line(line)
            redacted = definitions.sub(lambda match: match[1] + self._redact_value(match[2]), redacted)
            yield _ADDRESS.sub(rf"\1/{REDACTED}", redacted)

    def _redact_line(self, line: str) -> str:
        found = self._split_at_secret(line)
        return line if found is None else found[0] + self._redact_value(found[1])

    def _redact_value(self, value: str) -> str:
        if not value or _IS_REFERENCE.fullmatch(value):
            return value
        closing = value[len(value.rstrip(" ,}]")) :]
        self._record_value(value.removesuffix(closing))
        return f"{REDACTED}{closing}"

    def _record_value(self, value: str) -> None:
        plain = value.strip(" '\"")
        if len(plain) >= MIN_VALUE_LENGTH and REDACTED not in plain:
            self._values.add(plain)


def _definition_pattern(names: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern for the definitions of these names and aliases."""
    any_of = "|".join(sorted(map(re.escape, names))) or "(?!)"
    return re.compile(rf"(&(?:{any_of})\s{{1,20}}|^(?:{any_of})\s{{0,20}}:\s{{0,20}})(\S.*)$")
