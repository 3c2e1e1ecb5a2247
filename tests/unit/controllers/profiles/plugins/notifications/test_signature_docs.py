"""What the reference page says about signatures is true."""

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
async def test_python_can_check_a_signature(clock: Clock, secret: str) -> None:
    names: dict[str, Any] = {}
    exec(documented("python"), names)  # noqa: S102 - it is our own page
    is_ours: Callable[..., bool] = names["is_ours"]
    asked = await signed(clock, secret)
    assert is_ours(asked.headers, asked.body, secret)
    assert not is_ours(asked.headers, asked.body + b" ", secret)
    assert not is_ours(asked.headers, asked.body, f"{secret}MfKQ")
    assert not is_ours({**asked.headers, "webhook-timestamp": "1614265330"}, asked.body, secret)


@pytest.mark.real_time
@pytest.mark.skipif(not shutil.which("openssl"), reason="needs openssl")
async def test_a_shell_can_check_a_signature(clock: Clock, tmp_path: Path) -> None:
    asked = await signed(clock, SECRETS[0])
    named = {name: asked.headers[f"webhook-{name}"] for name in ("id", "timestamp", "signature")}

    def checked(**environment: str) -> bool:
        done = subprocess.run(
            ["sh", "-c", documented("sh")], cwd=tmp_path, env={"PATH": "/bin:/usr/bin", **environment}, check=False
        )
        return done.returncode == 0

    (tmp_path / "body").write_bytes(asked.body)
    assert checked(**named, secret=SECRETS[0])
    assert not checked(**named, secret="another")
