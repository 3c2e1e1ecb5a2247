"""The notification `teams`: posts a card to a workflow of Microsoft Teams."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from haulout.controllers.profiles.config.options import option, secret_option
from haulout.controllers.profiles.external.error_text import url_problem
from haulout.controllers.profiles.plugin import ExternalClient, Message, Notification
from haulout.controllers.profiles.plugins.notifications._common import render, require_accepted, template_problems

_MAX_TEXT = 16_000  # Teams accepts cards of up to 28 KB


@dataclass(frozen=True, slots=True, kw_only=True)
class Teams(Notification):
    """Posts a card to Microsoft Teams. This notification is Haulout's own.

    It posts to the webhook of a workflow ("When a Teams webhook request is received"), as an Adaptive Card with a
    title, the text, and the node, profile and state as facts. The message counts as sent if the status code of the
    response is 2xx.
    """

    type = "teams"
    example = """\
url: ${TEAMS_WORKFLOW}
title: Node maintenance
message: "{{ .Node.Name }} is now {{ .State }}"
"""

    url: str = secret_option("The address of the workflow. Whoever knows it can post.", required=True)
    message: str = option("A template of the text, in which Teams understands some Markdown.", required=True)
    title: str = option("A template of the title.", default="Node maintenance")
    facts: bool = option("Whether node, profile and state are listed below the text.", default=True)

    async def send(self, message: Message, external: ExternalClient) -> None:
        title, text = render("title", self.title, message), render("message", self.message, message)
        content = _card(_truncate(title), _truncate(text), _facts(message) if self.facts else {})
        card = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": content}
        body = msgspec.json.encode({"type": "message", "attachments": [card]})
        response = await external.request("POST", self.url, body=body, headers={"Content-Type": "application/json"})
        require_accepted(self.url, response)

    def problems(self) -> Iterator[tuple[str, str]]:
        if problem := url_problem(self.url):
            yield "url", problem

    def template_problems(self) -> Iterator[tuple[str, str]]:
        yield from template_problems(title=self.title, message=self.message)


def _facts(message: Message) -> dict[str, str]:
    if message.involved is not None:
        return {"Node": message.node, message.involved.kind: message.involved.name, "State": message.state}
    return {"Node": message.node, "Profile": message.profile, "State": message.state}


def _card(title: str, text: str, facts: dict[str, str]) -> dict[str, Any]:
    body: list[dict[str, Any]] = [
        {"type": "TextBlock", "text": title, "weight": "bolder", "size": "medium", "wrap": True},
        {"type": "TextBlock", "text": text, "wrap": True},
    ]
    if facts:
        body.append({"type": "FactSet", "facts": [{"title": name, "value": value} for name, value in facts.items()]})
    return {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": body,
    }


def _truncate(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…"
