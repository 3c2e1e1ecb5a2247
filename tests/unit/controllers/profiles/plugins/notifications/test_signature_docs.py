"""The signature examples of the reference page work."""

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from haulout.controllers.profiles.plugins.notifications.webhook import Webhook
from haulout.core.clock import Clock
from haulout.kube.client import Client
from support.fakes.external_client import FakeExternalClient, SentRequest, a_message
from support.fakes.scripted_transport import ScriptedTransport

PAGE = Path(__file__).parents[6] / "docs" / "reference" / "notifications.md"
SECRETS = ["a plain text", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]


def documented(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found
    return found[1]


async def signed(clock: Clock, secret: str) -> SentRequest:
    external = FakeExternalClient()
    message = a_message(client=Client(ScriptedTransport([]), clock=clock, random=Random(1)))
    await Webhook(url="https://x.test", secret=secret).send(message, external)
    return external.requests[0]


@pytest.mark.real_time
@pytest.mark.parametrize("secret", SECRETS)
async def test_documented_python_verifies_a_signature(clock: Clock, secret: str) -> None:
    names: dict[str, Any] = {}
    exec(documented("python"), names)  # noqa: S102 - it is our own page
    is_ours: Callable[..., bool] = names["is_ours"]
    request = await signed(clock, secret)
    assert is_ours(request.headers, request.body, secret)
    assert not is_ours(request.headers, request.body + b" ", secret)
    assert not is_ours(request.headers, request.body, f"{secret}MfKQ")
    assert not is_ours({**request.headers, "webhook-timestamp": "1614265330"}, request.body, secret)


@pytest.mark.real_time
@pytest.mark.skipif(not shutil.which("openssl"), reason="needs openssl")
async def test_documented_shell_script_verifies_a_signature(clock: Clock, tmp_path: Path) -> None:
    request = await signed(clock, SECRETS[0])
    named = {name: request.headers[f"webhook-{name}"] for name in ("id", "timestamp", "signature")}

    def checked(**environment: str) -> bool:
        done = subprocess.run(
            ["sh", "-c", documented("sh")], cwd=tmp_path, env={"PATH": "/bin:/usr/bin", **environment}, check=False
        )
        return done.returncode == 0

    (tmp_path / "body").write_bytes(request.body)
    assert checked(**named, secret=SECRETS[0])
    assert not checked(**named, secret="another")
