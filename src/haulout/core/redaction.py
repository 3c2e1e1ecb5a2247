"""Redaction: hides secrets in text for people, such as logs, archives, configuration files and error messages. Pure.

    redact(text)                      # by name (`password=…`) and by pattern (`ghp_…`): for logs and objects
    redact_known_patterns(text)       # by pattern only: for messages that must stay readable
    redact_values(text, secrets)      # secrets whose values are known
    FileRedactor(keys, values)        # a file that may not be valid YAML: hides more than necessary

No other code decides what looks like a secret. Every function takes time linear in the length of its input, because the
texts come from other programs. In doubt it hides: a hidden word costs a question, a leaked password costs a rotation.

Known values are redacted wherever they occur, but short ones never inside another word. No pattern may scan a long run
of characters and then fail, because the next attempt would scan the run again.

`redact` finds secrets that follow their name: `password=…`, `"token": "…"`, `--password …`, `curl -u name:…` and
`<secret>…</secret>`. A value ends where its syntax ends: at the closing quote; at the end of the line if `name: `
begins the line; otherwise at the next whitespace. A reference such as `${TOKEN}` is not hidden, because it does not
contain the secret.

`FileRedactor` redacts files that are not valid YAML, comments, and files of unknown formats line by line. The value
after a secret name is hidden, including following lines with a deeper indentation. If the value is a reference or an
alias, its definition is hidden, too. Of URLs, only the host is kept.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

_MAX_LENGTH = 256  # characters of a name, counted from its end, which is the significant part
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SEPARATORS = re.compile(r"[^a-z0-9]+")
# Secret wherever they occur in a name, also without separators: dbpassword, authToken, AWS_SECRET_ACCESS_KEY.
_STEMS = re.compile(
    "token|passw|passphrase|passcode|secret|credential|authorization|cookie|connectionstring"
    "|(?:api|private|access|account|shared|signing|encryption|master|client|session|routing|integration|genie)key"
)
_LAST_WORDS = frozenset({"pwd", "psk", "signature", "masterauth"})
# Last words of names whose value is a location, a kind or a number instead of the secret itself.
_HARMLESS_ENDS = frozenset(
    [
        "name",
        "names",
        "namespace",
        "file",
        "files",
        "path",
        "paths",
        "dir",
        "ref",
        "refs",
        "reference",
        "stdin",
        "seconds",
        "minutes",
        "expiration",
        "expiry",
        "expires",
        "ttl",
        "timeout",
        "count",
        "size",
        "length",
        "limit",
        "enabled",
        "required",
        "type",
        "types",
        "version",
        "mount",
        "mounts",
        "audience",
        "policy",
        "algorithm",
        "review",
        "reviews",
        "webhooks",
    ]
)
_WORDS_IN_PASS = frozenset({"bypass", "compass", "encompass", "overpass", "surpass", "trespass", "underpass"})
_WORKING_DIRECTORIES = frozenset({"PWD", "OLDPWD"})

REDACTED = "(hidden)"
MIN_VALUE_LENGTH = 4  # characters; a shorter value occurs in other text by chance
_MIN_LENGTH_INSIDE_WORDS = 8  # characters; a value this long is replaced inside words, too, as in a path or a query

_PEM = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    r".*?(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)",
    re.DOTALL,
)
# The start of a word, including after a line break that is written as an escape.
_START = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))"
_TOKENS = (
    r"gh[oprsu]_[A-Za-z0-9]{16,}",  # GitHub
    r"github_pat_\w{16,}",
    r"gl(?:agent|cbt|dt|ffct|imt|pat|ptt|rt|soat)-[\w.-]{16,}",  # GitLab
    r"xox[a-z]-[\w-]{6,}",  # Slack
    r"xapp-[\w-]{10,}",
    rf"{_START}(?:AKIA|ASIA)[A-Z0-9]{{16}}(?![A-Za-z0-9])",  # AWS
    r"AIza[\w-]{30,}",  # Google
    r"ya29\.[\w.-]{10,}",
    r"GOCSPX-[\w-]{10,}",
    rf"{_START}[\w.~-]{{3}}8Q~[\w.~-]{{20,}}",  # Microsoft Entra
    r"sha256~[\w-]{20,}",  # OpenShift
    r"hv[bsr]\.[\w-]{16,}",  # HashiCorp Vault
    rf"{_START}[\w-]{{14}}\.atlasv1\.[\w-]{{20,}}",  # Terraform
    r"dckr_[op]at_[\w-]{10,}",  # Docker Hub
    r"npm_[A-Za-z0-9]{30,}",
    r"pypi-AgEI[\w-]{10,}",
    r"rubygems_[0-9a-f]{32,}",
    r"do[oprt]_v1_[0-9a-f]{32,}",  # DigitalOcean
    r"gl(?:sa|c)_[\w=]{16,}",  # Grafana
    r"NRAK-[A-Z0-9]{16,}",  # New Relic
    r"sntry[su]_[\w=+/-]{16,}",  # Sentry
    r"[rs]k_(?:live|test)_\w{10,}",  # Stripe
    r"SG\.[\w-]{10,64}\.[\w-]{10,}",  # SendGrid
    rf"{_START}key-[0-9a-f]{{32}}\b",  # Mailgun
    rf"{_START}SK[0-9a-f]{{32}}\b",  # Twilio
    r"shp(?:at|ca|pa|ss)_[0-9a-f]{16,}",  # Shopify
    r"ATATT3[\w=-]{20,}",  # Atlassian
    r"lin_api_\w{16,}",  # Linear
    rf"{_START}dapi[0-9a-f]{{32}}\b",  # Databricks
    rf"{_START}hf_[A-Za-z0-9]{{20,}}",  # Hugging Face
    rf"{_START}sk-[\w-]{{20,}}",  # OpenAI and Anthropic
    rf"{_START}\d{{8,10}}:AA[\w-]{{30,}}",  # Telegram
    r"AGE-SECRET-KEY-1[A-Z0-9]{20,}",
    r"(?<=ocid1\.credential\.)[\w.-]+",  # Oracle Cloud
    rf"{_START}[a-z0-9]{{6}}\.(?=[a-z]{{0,15}}[0-9])[a-z0-9]{{16}}\b",  # bootstrap token of kubeadm
    r"LS0tLS1CRUdJTi(?:BSU0|BFQy|BQUk|BFTk|BPUE|BEU0)[\w+/=]*",  # base64 of a private key
    r"\$(?:apr1|2[abxy]|5|6|y|argon2\w{0,2}|scrypt)\$[^\s:\"',]{10,}",  # password hash
)
_CONTEXTS = (
    r"(?<=hooks\.slack\.com/)[\w/-]+",
    r"(?<=/api/webhooks/)[\w/-]+",  # Discord
    r"(?<=/webhookb2/)[^\s\"']+",  # Microsoft Teams
    r"(?<=office\.com/webhook/)[^\s\"']+",
    r"(?<=api\.telegram\.org/bot)[^/\s\"']+",
    r"(?<=/hooks/)[a-z0-9]{26}\b",  # Mattermost
    r"(?<=[?&]sig=)[^&\s\"']+",  # shared access signature of Azure
    r"(?<=[?&]key=)[^&\s\"']+",
    r"(?<=[Bb]earer )[\w.~+/=-]{8,}",
    r"(?<=[Bb]asic )(?=[A-Za-z+/]{0,100}(?:[0-9]|==?(?![\w=])))[A-Za-z0-9+/]{6,}={0,2}",
    r"(?<=://)[^/?#\s'\"]+(?=@)",  # credentials in a URL
    r"(?<=:)[^\s:@/'\"]+(?=@(?:tcp|unix|udp)\()",  # credentials in an address of Go's MySQL driver
)
_TOKEN = re.compile("|".join(_TOKENS))
_CONTEXT = re.compile("|".join(_CONTEXTS))
_DOCKER_AUTH = re.compile(r"(\\?[\"']auth\\?[\"']\s{0,3}:\s{0,3}\\?[\"'])[A-Za-z0-9+/=]{8,}")
_RUN = re.compile(r"[\w.-]{20,}")

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

_MAX_LINE_LENGTH = 10_000  # characters of a line
_NAME_PREFIX = re.compile(r"(['\"]?(?<![\w.-])([\w.-]++)['\"]?\s{0,20}[:=]\s{0,20})")
_ADDRESS = re.compile(r"(?<=://)([^/\s'\",}]+)/[^\s'\",}]*")
_REFERENCES = re.compile(r"\$\{([\w.-]+)|\*([^\s,\]}]+)")
_IS_REFERENCE = re.compile(r"['\"]?\$\{[\w.-]+\}['\"]?[,}\]\s]*|[*|>].*")


def is_secret_name(name: str) -> bool:
    """Return whether a value of this name is secret: `DB_PASS`, `db.pass`, `client-key-data`, `slackToken`."""
    if name in _WORKING_DIRECTORIES:
        return False
    name = name[-_MAX_LENGTH:]
    words = [word.lower() for word in _WORDS.findall(name)]
    last = words[-1] if words else ""
    if last in _HARMLESS_ENDS:
        return False
    if last in _LAST_WORDS or (last.endswith("pass") and last not in _WORDS_IN_PASS):
        return True
    return _STEMS.search(_SEPARATORS.sub("", name.lower())) is not None


def redact_values(text: str, values: Iterable[str]) -> str:
    """Return `text` without `values`. The longest is replaced first, because it may contain another one."""
    for value in sorted(values, key=len, reverse=True):
        text = replace_value(text, value, REDACTED)
    return text


def replace_value(text: str, value: str, replacement: str) -> str:
    """Return `text` with `value` replaced. A short value is replaced only as a separate word."""
    if not value or value not in text:
        return text
    if len(value) >= _MIN_LENGTH_INSIDE_WORDS:
        return text.replace(value, replacement)
    # A lambda, because a replacement text could contain backslashes.
    return re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", lambda _: replacement, text)


def redact_known_patterns(text: str) -> str:
    """Return `text` without what looks like a secret by itself: tokens, private keys, passwords in URLs."""
    # Private keys first: their lines would match other patterns only in part.
    text = _PEM.sub(REDACTED, text)
    text = _RUN.sub(_redact_web_token, text)
    text = _CONTEXT.sub(REDACTED, text)
    text = _TOKEN.sub(REDACTED, text)
    return _DOCKER_AUTH.sub(rf"\g<1>{REDACTED}", text)


def _redact_web_token(match: re.Match[str]) -> str:
    """Hide a JSON web token. It may follow other characters, such as the `n` of an escaped line break."""
    run = match[0]
    # `eyJ` is base64 of the `{"` with which the header of every JSON web token begins.
    at = run.find("eyJ")
    return run if at < 0 or run.count(".", at) < 2 else f"{run[:at]}{REDACTED}"  # noqa: PLR2004 - header.payload.signature


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


def is_secret_option(name: str) -> bool:
    """Return whether an unknown option is secret. A webhook URL is, because everybody who knows it can post to it."""
    return is_secret_name(name) or "webhook" in name.lower()


class FileRedactor:
    """Hides the values of `keys`, and of all secret names. The hidden values are added to `values`."""

    def __init__(self, keys: Collection[str], values: set[str]) -> None:
        self._values = values
        self._keys = {key.lower() for key in keys}

    def redact_comments(self, text: str) -> str:
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
                # The indentation stays, so that the structure of the file can still be read.
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
    any_of = "|".join(sorted(map(re.escape, names))) or "(?!)"
    return re.compile(rf"(&(?:{any_of})\s{{1,20}}|^(?:{any_of})\s{{0,20}}:\s{{0,20}})(\S.*)$")
