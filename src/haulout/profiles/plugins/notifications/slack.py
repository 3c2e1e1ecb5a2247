"""The notification `slack`."""

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from haulout.errors import OutsideError
from haulout.profiles.hidden import secret
from haulout.profiles.options import option
from haulout.profiles.plugin import Message, Notification, Outside
from haulout.profiles.plugins.notifications._texts import render, template_problems
from haulout.profiles.said import origin, quoted, url_problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Slack(Notification):
    """Posts to Slack, or what understands the same, by an incoming webhook.

    It counts as sent if the answer is `ok`, whatever its status. The text is taken as it is, so that Slack's markup can
    be used.
    """

    type = "slack"
    example = """\
hook: ${SLACK_HOOK}
channel: "#maintenance"
message: "{{ .Node.Name }} is now {{ .State }}"
"""

    hook: str = secret("The address of the webhook. Whoever knows it can post.", required=True)
    channel: str = option("The channel. Webhooks of today have their own, and ignore it.", required=True)
    message: str = option("A template of the text.", required=True)

    async def send(self, message: Message, outside: Outside) -> None:
        """Post the text."""
        text = render("message", self.message, message)
        body = msgspec.json.encode({"text": text, "channel": self.channel})
        headers = {"Content-Type": "application/json"}
        status, said = await outside.request("POST", self.hook, body=body, headers=headers)
        if said != b"ok":
            shown = quoted(said, secrets=(self.hook,))
            raise OutsideError(f"{origin(self.hook)} does not take the message, with status {status}: {shown}")

    def warnings(self) -> Iterator[tuple[str, str]]:
        """Yield what is wrong with the address; the Go controller loads it, and so do we."""
        if complaint := url_problem(self.hook):
            yield "hook", complaint

    def template_problems(self) -> Iterator[tuple[str, str]]:
        """Yield what is wrong with the text."""
        yield from template_problems(message=self.message)
