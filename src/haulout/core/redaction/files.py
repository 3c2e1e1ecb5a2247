"""Files that are not valid YAML, comments, and files of unknown formats: redacted line by line.

What follows the name of a secret is hidden, and so are the lines below it with a deeper indentation. What a reference
or an alias in such a place points to is hidden, too, and of an address everything but the host.
"""

import re
from collections.abc import Collection, Iterable, Iterator

from haulout.core.redaction.names import is_secret_name
from haulout.core.redaction.values import HIDDEN, RECOGNIZABLE

_LONGEST = 10_000  # characters of a line
_NAMED = re.compile(r"(['\"]?(?<![\w.-])([\w.-]++)['\"]?\s{0,20}[:=]\s{0,20})")
_ADDRESS = re.compile(r"(?<=://)([^/\s'\",}]+)/[^\s'\",}]*")
_NAMES = re.compile(r"\$\{([\w.-]+)|\*([^\s,\]}]+)")
_IS_A_NAME = re.compile(r"['\"]?\$\{[\w.-]+\}['\"]?[,}\]\s]*|[*|>].*")


def is_secret_option(name: str) -> bool:
    """Return whether an option that nobody knows is secret. Whoever knows the address of a webhook can post to it."""
    return is_secret_name(name) or "webhook" in name.lower()


class FileRedactor:
    """Hides the values of `keys`, and of whatever sounds like a secret. What it hides is added to `values`."""

    def __init__(self, keys: Collection[str], values: set[str]) -> None:
        self._values = values
        self._keys = {it.lower() for it in keys}

    def redact_comments(self, text: str) -> str:
        """Return a text without secrets in its comments."""
        return "\n".join(map(self._comment, text.split("\n")))

    def redact(self, text: str) -> str:
        """Return a text without whatever may be a secret."""
        lines = [it if len(it) <= _LONGEST else HIDDEN for it in text.split("\n")]
        targets = {name for line in lines for name in self._targets(line)}
        return "\n".join(self._redacted(lines, _definitions(targets)))

    def _comment(self, line: str) -> str:
        at = line.find("#") if line.lstrip().startswith("#") else line.find(" #")
        if at < 0:
            return line
        comment = line[at:]
        return line[:at] + (HIDDEN if len(comment) > _LONGEST else self._without_value(comment))

    def _split(self, line: str) -> tuple[str, str] | None:
        """Return a line up to the value of its first secret, and that value; None if there is no secret."""
        for match in _NAMED.finditer(line):
            if match[2].lower() in self._keys or is_secret_option(match[2]):
                return line[: match.end()], line[match.end() :]
        return None

    def _targets(self, line: str) -> Iterator[str]:
        found = self._split(line)
        for names in _NAMES.findall(found[1]) if found else ():
            yield from filter(None, names)

    def _redacted(self, lines: Iterable[str], definitions: re.Pattern[str]) -> Iterator[str]:
        deeper: int | None = None  # lines with a deeper indentation belong to a secret
        for line in lines:
            indent = len(line) - len(line.lstrip())
            if deeper is not None and line.strip() and indent > deeper:
                self._note(line)
                yield " " * indent + HIDDEN
                continue
            deeper = indent if self._split(line) else None
            shown = self._without_value(line)
            shown = definitions.sub(lambda match: match[1] + self._hidden(match[2]), shown)
            yield _ADDRESS.sub(rf"\1/{HIDDEN}", shown)

    def _without_value(self, line: str) -> str:
        found = self._split(line)
        return line if found is None else found[0] + self._hidden(found[1])

    def _hidden(self, value: str) -> str:
        if not value or _IS_A_NAME.fullmatch(value):
            return value
        closing = value[len(value.rstrip(" ,}]")) :]
        self._note(value.removesuffix(closing))
        return f"{HIDDEN}{closing}"

    def _note(self, value: str) -> None:
        plain = value.strip(" '\"")
        if len(plain) >= RECOGNIZABLE and HIDDEN not in plain:
            self._values.add(plain)


def _definitions(names: Iterable[str]) -> re.Pattern[str]:
    """Return what finds the values that these names and aliases stand for."""
    any_of = "|".join(sorted(map(re.escape, names))) or "(?!)"
    return re.compile(rf"(&(?:{any_of})\s{{1,20}}|^(?:{any_of})\s{{0,20}}:\s{{0,20}})(\S.*)$")
