"""Notifications by HTTP: Slack, generic webhooks, Microsoft Teams."""

import base64
import hashlib
import hmac
import json
from collections.abc import Sequence
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from haulout.controllers.profiles.plugin import Message, Notification
from haulout.controllers.profiles.plugins.notifications.slack import Slack
from haulout.controllers.profiles.plugins.notifications.slack_thread import SlackThread
from haulout.controllers.profiles.plugins.notifications.teams import Teams
from haulout.controllers.profiles.plugins.notifications.webhook import Webhook
from haulout.core.clock import Clock
from haulout.errors import ExternalError, UndeliverableMessage
from haulout.kube.client import Client
from haulout_sandbox.event_loops.virtual_time import EPOCH
from support.fakes.external_client import FakeExternalClient, FakeReply, SentRequest, a_message
from support.fakes.scripted_transport import ScriptedTransport

HOOK = "https://hooks.slack.test/services/T0/B0/s3cr3t"
TEXT = "{{ .Node.Name }} is in {{ .State }}"


@pytest.fixture
def message(clock: Clock) -> Message:
    return a_message(client=Client(ScriptedTransport([]), clock=clock, random=Random(1)))


async def sent(plugin: Notification, message: Message, *answers: FakeReply) -> SentRequest:
    external = FakeExternalClient(replies=list(answers))
    await plugin.send(message, external)
    (request,) = external.requests
    return request


async def refusal(plugin: Notification, message: Message, *answers: FakeReply) -> str:
    with pytest.raises(ExternalError) as caught:
        await sent(plugin, message, *answers)
    assert "s3cr3t" not in str(caught.value)
    return str(caught.value)


# slack


async def test_slack_request_has_text_and_channel(message: Message) -> None:
    """I17."""
    request = await sent(Slack(hook=HOOK, channel="#c", message=TEXT), message)
    assert (request.method, request.url, request.headers["Content-Type"]) == ("POST", HOOK, "application/json")
    assert request.json == {"text": "n1 is in in-maintenance", "channel": "#c"}


async def test_slack_requires_the_response_ok(message: Message) -> None:
    slack = Slack(hook=HOOK, channel="#c", message=TEXT)
    await sent(slack, message, (500, b"ok"))
    for body in (b"", b"OK", b"ok\n", b"<html>", f"no hook {HOOK}".encode()):
        assert "https://hooks.slack.test does not accept the message" in await refusal(slack, message, (200, body))


# webhook


def signature(request: SentRequest, key: bytes) -> str:
    signed = f"{request.headers['webhook-id']}.{request.headers['webhook-timestamp']}.{request.body.decode()}"
    return f"v1,{base64.b64encode(hmac.new(key, signed.encode(), hashlib.sha256).digest()).decode()}"


async def test_webhook_default_body_contains_all_fields(message: Message) -> None:
    request = await sent(Webhook(url="https://x.test/a?key=s3cr3t"), message, (204, b""))
    assert request.json == {
        "type": "node.maintenance",
        "id": request.headers["webhook-id"],
        "time": "2026-01-05T09:00:00Z",
        "node": "n1",
        "profile": "kernel",
        "state": "in-maintenance",
        "inMaintenance": True,
        "lastTransition": "2026-01-05T09:00:00Z",
        "labels": {"zone": "a"},
    }
    assert "webhook-signature" not in request.headers
    assert "Authorization" not in request.headers


async def test_webhook_signature_covers_id_timestamp_and_body(message: Message) -> None:
    request = await sent(Webhook(url="https://x.test", secret="key"), message)
    assert request.headers["webhook-timestamp"] == str(int(EPOCH.timestamp()))
    assert request.headers["webhook-signature"] == signature(request, b"key")


async def test_webhook_signature_follows_standard_webhooks(clock: Clock) -> None:
    """A test vector of the reference libraries for Python and Go; its ID and time differ here."""
    key = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    signed = b'msg_p5jXN8AQM9LWM0D4loKWxJek.1614265330.{"test": 2432232314}'
    digest = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest())
    assert digest == b"g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    message = a_message(client=Client(ScriptedTransport([]), clock=clock, random=Random(1)))
    request = await sent(Webhook(url="https://x.test", secret="whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), message)
    assert request.headers["webhook-signature"] == signature(request, key)


async def test_retried_webhook_keeps_its_id_with_a_new_timestamp(message: Message, clock: Clock) -> None:
    hook = Webhook(url="https://x.test", secret="key")
    first = await sent(hook, message)
    await clock.sleep(timedelta(minutes=5))
    again = await sent(hook, message)
    assert first.headers["webhook-id"] == again.headers["webhook-id"]
    assert int(again.headers["webhook-timestamp"]) - int(first.headers["webhook-timestamp"]) == 300
    assert again.headers["webhook-signature"] == signature(again, b"key") != first.headers["webhook-signature"]


async def test_webhook_body_is_rendered_from_its_template(message: Message) -> None:
    request = await sent(Webhook(url="https://x.test", body='{"on": "{{ .Node.Name }}"}', token="t0k\n"), message)
    assert request.json == {"on": "n1"}
    assert request.headers["Authorization"] == "Bearer t0k"


async def test_webhook_body_that_is_not_json_is_undeliverable(message: Message) -> None:
    with pytest.raises(UndeliverableMessage, match="does not render to JSON"):
        await sent(Webhook(url="https://x.test", body="{{ .Node.Name }}"), message)


@pytest.mark.parametrize("status", [302, 400, 404, 429, 500])
async def test_webhook_requires_a_successful_status(message: Message, status: int) -> None:
    hook = Webhook(url="https://x.test/s3cr3t", secret="s3cr3t", token="s3cr3t-token")
    message_text = await refusal(hook, message, (status, b"no: s3cr3t-token, s3cr3t\r\n\x00"))
    assert message_text == f"https://x.test does not accept the message: status {status}: 'no: (hidden), (hidden)'"


# teams


async def test_teams_request_is_an_adaptive_card(message: Message) -> None:
    teams = Teams(url="https://flow.test/x?sig=s3cr3t", message=TEXT, title="{{ .Profile }}")
    request = await sent(teams, message, (202, b""))
    (attachment,) = request.json["attachments"]
    assert (request.json["type"], attachment["contentType"]) == ("message", "application/vnd.microsoft.card.adaptive")
    card = attachment["content"]
    assert (card["type"], card["version"]) == ("AdaptiveCard", "1.4")
    title, text, facts = card["body"]
    assert (title["text"], text["text"]) == ("kernel", "n1 is in in-maintenance")
    assert [(fact["title"], fact["value"]) for fact in facts["facts"]] == [
        ("Node", "n1"),
        ("Profile", "kernel"),
        ("State", "in-maintenance"),
    ]
    assert "does not accept the message: status 400" in await refusal(teams, message, (400, b"{}"))


async def test_teams_card_may_omit_facts_and_truncates_text(message: Message) -> None:
    request = await sent(Teams(url="https://flow.test", message="x" * 100_000, facts=False), message)
    assert len(request.body) < 28_000
    assert len(request.json["attachments"][0]["content"]["body"]) == 2


# All plugins

THREAD = SlackThread(
    token="s3cr3t",
    channel="#c",
    title="t",
    message="m",
    lease_name="l",
    lease_namespace="ns",
    period=timedelta(hours=1),
)
ALL: Sequence[Notification] = (
    Slack(hook=HOOK, channel="#c", message=TEXT),
    THREAD,
    Webhook(url="https://x.test/s3cr3t", secret="s3cr3t", token="s3cr3t"),
    Teams(url="https://flow.test/s3cr3t", message=TEXT),
)


@pytest.mark.parametrize("plugin", ALL, ids=lambda it: it.type)
def test_repr_hides_secrets(plugin: Notification) -> None:
    assert "s3cr3t" not in repr(plugin)
    assert [*plugin.problems(), *plugin.template_problems()] == []


@pytest.mark.parametrize(
    "url", ["", "s3cr3t", "ftp://x.test/s3cr3t", "https://", "http://x:99999/", "http://[::1/", "http://a b/"]
)
def test_invalid_url_is_reported_at_load_without_the_url(url: str) -> None:
    """A hook that the SAP maintenance-controller loads is only a warning; when used, it made that one crash."""
    slack = Slack(hook=url, channel="#c", message=TEXT)
    assert not list(slack.problems())
    for problems in (slack.warnings(), Webhook(url=url).problems(), Teams(url=url, message=TEXT).problems()):
        ((key, problem),) = problems
        assert key in ("hook", "url")
        assert "s3cr3t" not in problem


def test_other_invalid_options_are_reported_at_load() -> None:
    (problem,) = Webhook(url="https://x.test", secret="whsec_s3cr3t!").problems()
    assert problem[0] == "secret"
    assert "s3cr3t" not in problem[1]
    broken: dict[str, Any] = {"message": "{{ .Node"}
    assert [key for key, _ in Slack(hook=HOOK, channel="#c", **broken).template_problems()] == ["message"]
    assert [key for key, _ in Teams(url=HOOK, title="{{", **broken).template_problems()] == ["title", "message"]
    assert [key for key, _ in Webhook(url=HOOK, body="{{").template_problems()] == ["body"]


async def test_webhook_supports_a_node_without_fields(message: Message) -> None:
    bare = a_message(client=message.client, raw_node={}, last_transition=None)
    request = await sent(Webhook(url="https://x.test"), bare)
    assert json.loads(request.body)["lastTransition"] is None
