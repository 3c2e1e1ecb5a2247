"""Redacts secrets that follow their name.

Examples are `password=…`, `"token": "…"`, `--password …`, `curl -u name:…` and `<secret>…</secret>`. A value ends where
its syntax ends: at the closing quote; at the end of the line if `name: ` begins the line; otherwise at the next
whitespace. A reference such as `${TOKEN}` is not hidden, because it does not contain the secret.
"""

import re
from collections.abc import Iterator, Sequence

from haulout.core.redaction.names import is_secret_name
from haulout.core.redaction.patterns import redact_known_patterns
from haulout.core.redaction.values import REDACTED

# Possessive quantifiers: a run of a megabyte is scanned only once.
_NAME = re.compile(r"(?<![\w.-])([\w.-]++)(\\?[\"']?\]?[^\S\n]{0,20}(?::=|=>|={1,2}|:)[^\S\n]{0,20})")
_REFERENCE = re.compile(r"\$\{[\w.-]+\}|\$\(\w+\)|\$\w+|\{\{[^{}]{0,200}\}\}|\*+|<[\w -]{1,40}>|" + re.escape(REDACTED))
_HARMLESS_VALUES = frozenset({"", "true", "false", "null", "none", "nil", "~", "{}", "[]", "{", "|", ">", "|-", ">-"})
_BARE_VALUE = re.compile(r"[^\s\"'&]+")
_NEXT_NAME = re.compile(r"[,;][\w.-]{1,80}[\"']?[:=]")
_CLOSING = " \t,;)}]>"
_OBJECT = re.compile(r"\{(?!\{)")
_WHOLE_LINE = re.compile(r"[^\n\"']*")
_LINE_BEFORE = re.compile(r"[ \t]*(?:[#-][ \t]+)?[\"']?\Z")
_WHOLE_LINE_NAMES = ("authorization", "cookie")
_FLAG = re.compile(
    r"(?<![\w-])(--?(?P<name>[A-Za-z][\w.-]*+)\\?[\"']?(?:\s*+,\s*+|\s++)(?:-\s++)?)"
    r"(?P<value>\\?\"[^\"\n]*+\"|'[^'\n]*+'|(?!-)[^\s\"',\]]++)"
)
_IS_FLAG = re.compile(r"--?([A-Za-z][\w.-]*)")
_USER = r"-u|-U|--user|--proxy-user|--basic-auth"
_USER_PASSWORDS = re.compile(
    rf"(?<![\w-])((?:{_USER})(?:\\?[\"']?\s*+,\s*+|\s++|=)?\\?[\"']?[^\s:%\"',=]{{1,100}}[:%])[^\s\"',]+"
)
_IS_USER_FLAG = re.compile(_USER)
_PROGRAM_PASSWORDS = re.compile(
    r"("
    r"sshpass\s+-p\s*"
    r"|(?:mysql|mariadb)[\w-]{0,20}\s[^\n|;&]{0,200}?(?<=\s)-p(?=\S)"
    r"|redis-cli\s[^\n|;&]{0,200}?(?<=\s)-a\s+"
    r"|ldap\w{2,10}\s[^\n|;&]{0,400}?(?<=\s)-w\s+"
    r"|docker\s+login\s[^\n|;&]{0,200}?(?<=\s)-p\s+"
    r"|-pass(?:in|out)?\s+pass:"
    r"|login\s+\S{1,100}\s+password\s+"
    r"|identified\s+by\s+(?:password\s+)?"
    r"|(?:^|\n)[ \t]*(?:requirepass|masterauth)[ \t]+"
    r")"
    r"([\"'][^\"'\n]*[\"']|[^\s\"'|;&]+)",
    re.IGNORECASE,
)
_CHPASSWD_INPUT = re.compile(r"(\becho\s+[\"']?[\w.-]{1,64}:)[^\s\"']+(?=[\"']?\s*\|\s*chpasswd)")
_SHELL_VARIABLES = re.compile(r"(\b(?:ENV|ARG|setenv|setx)[ \t]+([\w.-]++)[ \t]+)(\S[^\n]*)")
_ELEMENT = re.compile(r"(<([\w.:-]{1,100})(?:\s[^<>]{0,200})?>)([^<]+)(?=</)")
# An environment variable in a Kubernetes object: `name: SMTP_PASS`, then `value: …`, in YAML or JSON.
_NAME_AND_VALUE = re.compile(
    r"(\bname\\?[\"']?[ \t]{0,20}:[ \t]{0,20}\\?[\"']?(?P<name>[\w.-]++)\\?[\"']?,?\s{0,200}+"
    r"\\?[\"']?value\\?[\"']?[ \t]{0,20}:[ \t]{0,20})"
    r"(?P<value>\\\"[^\"\n]*+\"|\"(?:[^\"\\\n]|\\.)*+\"|'[^'\n]*+'|[^\s\"'][^\n}]*+)",
    re.IGNORECASE,
)
_MYSQL = re.compile(r"(?:.*/)?(?:mysql|mariadb)[\w-]*")


def redact(text: str) -> str:
    """Return `text` without values that have a secret name, and without known secret patterns."""
    text = redact_known_patterns(text)
    text = _FLAG.sub(_redact_named_value, text)
    text = _NAME_AND_VALUE.sub(_redact_named_value, text)
    text = _USER_PASSWORDS.sub(rf"\g<1>{REDACTED}", text)
    text = _PROGRAM_PASSWORDS.sub(rf"\g<1>{REDACTED}", text)
    text = _CHPASSWD_INPUT.sub(rf"\g<1>{REDACTED}", text)
    text = _SHELL_VARIABLES.sub(_redact_named, text)
    text = _ELEMENT.sub(_redact_named, text)
    return "".join(_redact_assigned(text))


def redact_arguments(arguments: Sequence[str]) -> list[str]:
    """Return a redacted command line whose flags and values are separate items: `["--password", "x"]`."""
    is_mysql = any(_MYSQL.fullmatch(argument) for argument in arguments[:1])
    found: list[str] = []
    for previous, item in zip(("", *arguments), arguments, strict=False):
        flag = _IS_FLAG.fullmatch(previous)
        if flag and not item.startswith("-") and is_secret_name(flag[1]) and not _is_harmless_value(item):
            found.append(REDACTED)
        elif _IS_USER_FLAG.fullmatch(previous) and ":" in item:
            found.append(f"{item.partition(':')[0]}:{REDACTED}")
        elif is_mysql and item.startswith("-p") and item != "-p":
            found.append(f"-p{REDACTED}")
        else:
            found.append(redact(item))
    return found


def _redact_named_value(match: re.Match[str]) -> str:
    """Hide the group `value` if the group `name` is the name of a secret."""
    if not is_secret_name(match["name"]) or _is_harmless_value(match["value"].strip("\\\"'")):
        return match[0]
    return f"{match[1]}{_redacted_like(match['value'])}"


def _redact_named(match: re.Match[str]) -> str:
    """Hide the third group if the second is the name of a secret."""
    return f"{match[1]}{REDACTED}" if is_secret_name(match[2]) and not _is_harmless_value(match[3]) else match[0]


def _redacted_like(value: str) -> str:
    quote = next((candidate for candidate in ('\\"', '"', "'") if value.startswith(candidate)), "")
    return f"{quote}{REDACTED}{quote}"


def _is_harmless_value(value: str) -> bool:
    """Return whether a value reveals nothing: it is empty, a boolean, or a reference."""
    return value.strip().lower() in _HARMLESS_VALUES or _REFERENCE.fullmatch(value.strip()) is not None


def _redact_assigned(text: str) -> Iterator[str]:
    copied_until = at = 0
    while match := _NAME.search(text, at):
        at = match.end()
        if not is_secret_name(match[1]):
            continue
        start, end = _value_span(text, match)
        if end > start and not _is_harmless_value(text[start:end]):
            yield text[copied_until:start]
            yield REDACTED
            copied_until = end
        at = max(at, end)
    yield text[copied_until:]


def _value_span(text: str, match: re.Match[str]) -> tuple[int, int]:
    """Return the start and the end of the value that follows a name."""
    at = match.end()
    for quote in ('\\"', '"', "'", "`"):
        if text.startswith(quote, at):
            start = at + len(quote)
            return start, _closing_quote(text, start, quote)
    if text.startswith("[", at):
        inside = at + 1
        return inside, inside if text.startswith("{", inside) else _find_first(text, "]\n", inside)
    if match[1].lower().endswith(_WHOLE_LINE_NAMES):
        return at, _match_end(_WHOLE_LINE, text, at)
    if ":" in match[2] and _begins_line(text, match.start()) and not _OBJECT.match(text, at):
        return at, at + _value_length(text[at : _find_first(text, "\n", at)])
    run = text[at : _match_end(_BARE_VALUE, text, at)]
    following = _NEXT_NAME.search(run)
    return at, at + _value_length(run[: following.start()] if following else run)


def _value_length(value: str) -> int:
    """Return the length of a value without trailing brackets that belong to its context."""
    reference = _REFERENCE.match(value)
    if reference and not value[reference.end() :].strip(_CLOSING):
        return reference.end()
    return len(value.rstrip(_CLOSING))


def _closing_quote(text: str, at: int, quote: str) -> int:
    """Return the end of a quoted value; the end of its line if the quote is not closed."""
    line = _find_first(text, "\n", at)
    end = text.find(quote, at, line)
    while quote == '"' and end > at and text[end - 1] == "\\":
        end = text.find(quote, end + 1, line)
    return line if end < 0 else end


def _find_first(text: str, characters: str, at: int) -> int:
    """Return the position of the first of `characters`; the end of the text if there is none."""
    return min((found for character in characters if (found := text.find(character, at)) >= 0), default=len(text))


def _match_end(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return at if found is None else found.end()


def _begins_line(text: str, at: int) -> bool:
    start = max(text.rfind("\n", max(0, at - 200), at) + 1, at - 200, 0)
    return (start == 0 or text[start - 1] == "\n") and _LINE_BEFORE.match(text[start:at]) is not None
