"""The notification `slack`: posts to an incoming webhook of Slack."""

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from haulout.controllers.profiles.config.options import option, secret_option
from haulout.controllers.profiles.external.error_text import origin, quote_response, url_problem
from haulout.controllers.profiles.plugin import ExternalClient, Message, Notification
from haulout.controllers.profiles.plugins.notifications._common import render, template_problems
from haulout.errors import ExternalError


@dataclass(frozen=True, slots=True, kw_only=True)
class Slack(Notification):
    """Posts to Slack, or to a compatible service, by an incoming webhook.

    The message counts as sent if the response is `ok`, whatever its status code. The text is sent as it is, so Slack's
    markup can be used.
    """

    type = "slack"
    example = """\
hook: ${SLACK_HOOK}
channel: "#maintenance"
message: "{{ .Node.Name }} is now {{ .State }}"
"""

    hook: str = secret_option("The address of the webhook. Whoever knows it can post.", required=True)
    channel: str = option("The channel. Current webhooks have their own channel, and ignore it.", required=True)
    message: str = option("A template of the text.", required=True)

    async def send(self, message: Message, external: ExternalClient) -> None:
        text = render("message", self.message, message)
        body = msgspec.json.encode({"text": text, "channel": self.channel})
        headers = {"Content-Type": "application/json"}
        response = await external.request("POST", self.hook, body=body, headers=headers)
        if response.body != b"ok":
            quoted_body = quote_response(response.body, secrets=(self.hook,))
            raise ExternalError(
                f"{origin(self.hook)} does not accept the message: status {response.status}: {quoted_body}"
            )

    def warnings(self) -> Iterator[tuple[str, str]]:
        """Yield why the URL is not valid. This is a warning because the Go controller loads such a file, too."""
        if problem := url_problem(self.hook):
            yield "hook", problem

    def template_problems(self) -> Iterator[tuple[str, str]]:
        yield from template_problems(message=self.message)
