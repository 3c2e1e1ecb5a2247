"""Secrets in text that cannot be read as YAML, or is not meant to be: told by the names before them, line by line.

What stands after such a name goes, and so do the lines below it that stand further to the right. Whatever a name or an
alias in such a place leads to goes, too, and of an address all but the host.
"""

import re
from collections.abc import Collection, Iterable, Iterator

HIDDEN = "(hidden)"
_RECOGNISABLE = 4
_LONGEST = 10_000  # characters of a line
_TELLING = r"token|passw|passphrase|secret|api[_-]?key|credential|private[_-]?key|authorization|webhook"
_TELLS = re.compile(_TELLING, re.IGNORECASE)
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s'\"]+(?=@)")
_RECOGNISED = re.compile(r"xox[a-z]-[\w-]{6,}|(?<=hooks\.slack\.com/)[\w/-]+|(?<=[Bb]earer )[\w.~+/=-]{8,}")
_ADDRESS = re.compile(r"(?<=://)([^/\s'\",}]+)/[^\s'\",}]*")
_NAMES = re.compile(r"\$\{([\w.-]+)|\*([^\s,\]}]+)")
_IS_A_NAME = re.compile(r"['\"]?\$\{[\w.-]+\}['\"]?[,}\]\s]*|[*|>].*")


def is_telling(name: str) -> bool:
    """Tell whether a key is called a secret."""
    return _TELLS.search(name) is not None


def obvious(text: str) -> str:
    """Return a text without what looks like a secret, whoever wrote it: credentials in addresses, tokens of Slack."""
    return _RECOGNISED.sub(HIDDEN, _CREDENTIALS.sub(HIDDEN, text))


class Lines:
    """Strikes secrets out of lines, whose names are those in `keys` and whatever sounds like one.

    What was struck out is added to `values`.
    """

    def __init__(self, keys: Collection[str], values: set[str]) -> None:
        self._values = values
        known = "|".join(sorted(map(re.escape, keys))) or "(?!)"
        name = rf"(?<![\w.-])(?:[\w.-]{{0,60}}(?:{_TELLING})[\w.-]{{0,60}}|{known})"
        self._named = re.compile(rf"(['\"]?{name}['\"]?\s{{0,20}}[:=]\s{{0,20}})(\S.*)?$", re.IGNORECASE)

    def in_comments(self, text: str) -> str:
        """Return a text whose comments have no secrets."""
        return "\n".join(map(self._comment, text.split("\n")))

    def anywhere(self, text: str) -> str:
        """Return a text without whatever may be a secret."""
        lines = [it if len(it) <= _LONGEST else HIDDEN for it in text.split("\n")]
        leads_to = {name for line in lines for name in self._leads_to(line)}
        return "\n".join(self._struck(lines, _places(leads_to)))

    def _comment(self, line: str) -> str:
        at = line.find("#") if line.lstrip().startswith("#") else line.find(" #")
        if at < 0:
            return line
        comment = line[at:]
        return line[:at] + (HIDDEN if len(comment) > _LONGEST else self._named.sub(self._replaced, comment))

    def _leads_to(self, line: str) -> Iterator[str]:
        found = self._named.search(line)
        for names in _NAMES.findall(found[2] or "") if found else ():
            yield from filter(None, names)

    def _struck(self, lines: Iterable[str], places: re.Pattern[str]) -> Iterator[str]:
        deeper: int | None = None  # what stands further to the right belongs to a secret
        for line in lines:
            indent = len(line) - len(line.lstrip())
            if deeper is not None and line.strip() and indent > deeper:
                self._note(line)
                yield " " * indent + HIDDEN
                continue
            deeper = indent if self._named.search(line) else None
            line = places.sub(self._replaced, self._named.sub(self._replaced, line))  # noqa: PLW2901 - the same line
            yield _ADDRESS.sub(rf"\1/{HIDDEN}", line)

    def _replaced(self, match: re.Match[str]) -> str:
        value = match[2] or ""
        if not value or _IS_A_NAME.fullmatch(value):
            return match[0]
        closing = value[len(value.rstrip(" ,}]")) :]
        self._note(value.removesuffix(closing))
        return f"{match[1]}{HIDDEN}{closing}"

    def _note(self, value: str) -> None:
        plain = value.strip(" '\"")
        if len(plain) >= _RECOGNISABLE and HIDDEN not in plain:
            self._values.add(plain)


def _places(names: Iterable[str]) -> re.Pattern[str]:
    """Return what finds the values that these names and aliases lead to."""
    any_of = "|".join(sorted(map(re.escape, names))) or "(?!)"
    return re.compile(rf"(&(?:{any_of})\s{{1,20}}|^(?:{any_of})\s{{0,20}}:\s{{0,20}})(\S.*)$")
