"""The notification `mail`: sends a message by SMTP."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from email import quoprimime
from email.header import Header
from email.utils import format_datetime, formataddr, parseaddr

from haulout.controllers.profiles.config.options import option, secret_option
from haulout.controllers.profiles.external.smtp import Credentials, Envelope, split_server
from haulout.controllers.profiles.plugin import ExternalClient, Message, Notification
from haulout.controllers.profiles.plugins.notifications._common import message_id, render, template_problems
from haulout.errors import UndeliverableMessage

# RFC 5322, section 2.1.1: a line has at most 998 characters.
_LONGEST_LINE = 900
_LINE_END = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mail(Notification):
    """Sends a mail by SMTP.

    The connection uses TLS if the server offers STARTTLS; on port 465 it uses TLS from the start. With `auth`, a
    password is sent only over TLS or to localhost: by AUTH PLAIN; if the server does not offer it, by LOGIN or
    CRAM-MD5. If the server rejects one of the recipients, the mail is sent to none.

    Besides `From`, `To` and `Subject` a mail has `Date`, `Message-ID` and headers that declare its text as UTF-8. A
    mail that is sent again, because it is unknown whether the first attempt succeeded, has the same `Message-ID`.
    """

    type = "mail"
    example = """\
address: smtp.example.com:587
from: maintenance@example.com
to: [team@example.com]
subject: Node maintenance
message: "{{ .Node.Name }} is now {{ .State }}"
auth: true
user: maintenance
password: ${SMTP_PASSWORD}
"""

    address: str = option("The mail server, as `host:port`.", required=True)
    from_: str = option("The sender's address.", required=True)
    to: tuple[str, ...] = option("The addresses of all recipients.", required=True)
    subject: str = option("The subject. It is not a template.", required=True)
    message: str = option("A template of the text.", required=True)
    auth: bool = option("Whether to log in.", default=False)
    identity: str = option("The identity to act as (SASL authzid), if it is not the user.", default="")
    user: str = option("The user to log in as.", default="")
    password: str = secret_option("The user's password.", default="")

    async def send(self, message: Message, external: ExternalClient) -> None:
        if problem := next(self._address_problems(), None):
            raise UndeliverableMessage(": ".join(problem))
        login = Credentials(user=self.user, password=self.password, identity=self.identity) if self.auth else None
        envelope = Envelope(
            server=self.address.strip(),
            sender=_bare_address(self.from_),
            recipients=tuple(map(_bare_address, self.to)),
            content=self._content(message).encode("ascii"),
            login=login,
        )
        await external.send_mail(envelope)

    def warnings(self) -> Iterator[tuple[str, str]]:
        """Yield invalid addresses. These are warnings because the Go controller loads such a file, too."""
        if split_server(self.address) is None:
            yield "address", f"found {self.address!r}, expected host:port, such as smtp.example.com:587"
        yield from self._address_problems()

    def _address_problems(self) -> Iterator[tuple[str, str]]:
        for key, address in (("from", self.from_), *(("to", recipient) for recipient in self.to)):
            if not _bare_address(address) or _LINE_END.search(address.strip()):
                yield key, f"found {address!r}, expected an address such as team@example.com"

    def template_problems(self) -> Iterator[tuple[str, str]]:
        yield from template_problems(message=self.message)

    def _content(self, message: Message) -> str:
        text = "\n".join(_LINE_END.split(render("message", self.message, message)))
        plain = text.isascii() and all(len(line) <= _LONGEST_LINE for line in text.split("\n"))
        domain = _bare_address(self.from_).rpartition("@")[2]
        headers = {
            "From": _header("From", _header_address(self.from_)),
            "To": _join_addresses(map(_header_address, self.to)),
            "Subject": _header("Subject", " ".join(self.subject.split())),
            "Date": format_datetime(message.now),
            "Message-ID": f"<{message_id(message)}@{domain if domain.isascii() and domain else 'haulout.invalid'}>",
            # RFC 3834: keeps auto-responders, such as those of absent people, from answering.
            "Auto-Submitted": "auto-generated",
            "MIME-Version": "1.0",
            "Content-Type": "text/plain; charset=utf-8",
            "Content-Transfer-Encoding": "7bit" if plain else "quoted-printable",
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"{head}\r\n{text if plain else _quoted_printable(text)}"


def _bare_address(address: str) -> str:
    """Return the address without a display name."""
    return parseaddr(address.strip())[1] or address.strip()


def _header_address(address: str) -> str:
    """Return the address as encoded in a header."""
    address = address.strip()
    return address if address.isascii() else formataddr(parseaddr(address))


def _join_addresses(addresses: Iterator[str]) -> str:
    listed = list(addresses)
    line = ",".join(listed)
    return line if len(line) <= _LONGEST_LINE else ",\r\n ".join(listed)


def _header(name: str, text: str) -> str:
    if text.isascii() and len(text) <= _LONGEST_LINE:
        return text
    return Header(text, "utf-8", header_name=name).encode(linesep="\r\n")


def _quoted_printable(text: str) -> str:
    # `body_encode` takes a text whose characters stand for the bytes of the message.
    return quoprimime.body_encode(text.encode().decode("latin-1"), eol="\n")
