import asyncio
import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from haulout.core.clock import Clock
from haulout.errors import CredentialsError
from haulout.kube.transports import exec_plugin
from haulout.kube.transports.config import load
from haulout.kube.transports.credentials import (
    CertificateFiles,
    CombinedCredentials,
    Identity,
    StaticCredentials,
    TokenFile,
)
from haulout.kube.transports.exec_plugin import ExecPlugin, ExecSpec, InteractiveMode
from haulout_sandbox.event_loops.virtual_time import EPOCH, VirtualClock
from support.servers.certificates import Authority

V1 = "client.authentication.k8s.io/v1"
AUTHORITY = Authority()
ALICE, ALICE_LATER = AUTHORITY.issue("alice"), AUTHORITY.issue("alice")

MINUTE = timedelta(minutes=1)


# Token files


async def test_token_file_is_reread_every_minute(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "token"
    path.write_text("one\n")
    credentials = TokenFile(path, clock=clock)
    assert await credentials.current() == Identity("Bearer one")
    path.write_text("two")
    await clock.sleep(MINUTE - timedelta(seconds=1))
    assert await credentials.current() == Identity("Bearer one")
    await clock.sleep(timedelta(seconds=1))
    assert await credentials.current() == Identity("Bearer two")


async def test_rejected_token_is_reread_at_once(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    credentials = TokenFile(path, clock=clock)
    refused = await credentials.current()
    path.write_text("two")
    await credentials.refresh(refused)
    assert await credentials.current() == Identity("Bearer two")


async def test_rejection_of_a_token_no_longer_in_use_is_ignored(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    credentials = TokenFile(path, clock=clock)
    await credentials.current()
    path.write_text("two")
    await credentials.refresh(Identity("Bearer zero"))
    assert await credentials.current() == Identity("Bearer one")


@pytest.mark.parametrize("content", [None, "", "  \n", "two words", "a\nb", b"\xff"])
async def test_unreadable_token_file_keeps_the_last_valid_token(
    tmp_path: Path, clock: Clock, content: str | bytes | None
) -> None:
    path = tmp_path / "token"
    path.write_text("good")
    credentials = TokenFile(path, clock=clock)
    await credentials.current()
    path.unlink()
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    await clock.sleep(MINUTE)
    assert await credentials.current() == Identity("Bearer good")
    path.write_text("better")
    await clock.sleep(MINUTE)
    assert await credentials.current() == Identity("Bearer better")


async def test_missing_token_file_is_an_error_until_it_exists(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "token"
    credentials = TokenFile(path, clock=clock)
    with pytest.raises(CredentialsError, match=f"^reading the token in {path}: No such file or directory$"):
        await credentials.current()
    path.write_text("")
    with pytest.raises(CredentialsError, match=f"reading the token in {path}: it is empty"):
        await credentials.current()
    path.write_text("here")
    assert await credentials.current() == Identity("Bearer here")


# Certificate files


async def test_certificate_files_are_reread_when_they_change(tmp_path: Path, clock: Clock) -> None:
    cert, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    cert.write_bytes(ALICE.cert_pem)
    key.write_bytes(ALICE.key_pem)
    credentials = CertificateFiles(cert, key, owner="alice", clock=clock)
    first = await credentials.current()
    assert first == Identity(None, ALICE.client_certificate)
    await clock.sleep(MINUTE)
    assert await credentials.current() is first

    cert.write_bytes(ALICE_LATER.cert_pem)
    await clock.sleep(MINUTE)
    assert await credentials.current() is first, "a half replaced pair must not be used"

    key.write_bytes(ALICE_LATER.key_pem)
    await credentials.refresh(first)
    assert await credentials.current() == Identity(None, ALICE_LATER.client_certificate)


async def test_deleted_certificate_file_keeps_the_last_valid_pair(tmp_path: Path, clock: Clock) -> None:
    cert = tmp_path / "tls.crt"
    cert.write_bytes(ALICE.cert_pem)
    credentials = CertificateFiles(cert, ALICE.key_pem, owner="alice", clock=clock)
    first = await credentials.current()
    cert.unlink()
    await clock.sleep(MINUTE)
    assert await credentials.current() is first


async def test_missing_certificate_file_is_an_error(tmp_path: Path, clock: Clock) -> None:
    credentials = CertificateFiles(tmp_path / "tls.crt", ALICE.key_pem, owner="user 'alice'", clock=clock)
    with pytest.raises(CredentialsError, match=r"certificate of user 'alice': .*tls.crt: No such file or directory"):
        await credentials.current()


async def test_refresh_of_combined_credentials_refreshes_header_and_certificate(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    certificate = StaticCredentials(Identity(None, ALICE.client_certificate))
    credentials = CombinedCredentials(header=TokenFile(path, clock=clock), certificate=certificate)
    refused = await credentials.current()
    assert refused == Identity("Bearer one", ALICE.client_certificate)
    path.write_text("two")
    await credentials.refresh(refused)
    assert await credentials.current() == Identity("Bearer two", ALICE.client_certificate)


# Exec plugins


class Plugin:
    """An exec plugin that counts its runs and prints a configured answer."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "plugin"
        self.clock = VirtualClock()
        self.script('printf "x" >> runs; cat answer')
        self.answer(token="t1")

    def script(self, body: str) -> None:
        """Set the script of the plugin."""
        self.path.write_text(f"#!/bin/sh\ncd {self.folder}\n{body}\n")
        self.path.chmod(0o700)

    def answer(self, *, ends_in: timedelta | None = None, version: str = V1, **status: str) -> None:
        """Set the credential that the plugin prints."""
        ends = {} if ends_in is None else {"expirationTimestamp": f"{self.clock.now() + ends_in:%Y-%m-%dT%H:%M:%SZ}"}
        credential = {"apiVersion": version, "kind": "ExecCredential", "status": {**status, **ends}}
        (self.folder / "answer").write_text(json.dumps(credential))

    @property
    def runs(self) -> int:
        """Return how often the plugin ran."""
        path = self.folder / "runs"
        return len(path.read_text()) if path.exists() else 0

    def credentials(self, **spec: Any) -> ExecPlugin:
        """Return credentials that use the plugin."""
        defaults = {"command": str(self.path), "api_version": V1, "owner": "user 'alice' in config"}
        return ExecPlugin(ExecSpec(**{**defaults, **spec}), clock=self.clock)

    async def error_text(self, **spec: Any) -> str:
        """Return the error text when the plugin returns no credentials."""
        with pytest.raises(CredentialsError) as caught:
            await self.credentials(**spec).current()
        assert "\n" not in str(caught.value)
        return str(caught.value)


class StoppedClock(VirtualClock):
    """A clock whose wall time moves only when it is set, also on a real event loop."""

    def monotonic(self) -> float:
        """Return the same moment, always."""
        return 0.0


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    plugin = Plugin(tmp_path)
    plugin.clock = StoppedClock(EPOCH)
    return plugin


@pytest.mark.real_time
@pytest.mark.parametrize("version", exec_plugin.API_VERSIONS)
async def test_exec_plugin_runs_once_for_all_requests(plugin: Plugin, version: str) -> None:
    plugin.answer(token="t1", version=version)
    credentials = plugin.credentials(api_version=version)
    assert await credentials.current() == Identity("Bearer t1")
    assert await credentials.current() == Identity("Bearer t1")
    assert plugin.runs == 1


@pytest.mark.real_time
@pytest.mark.parametrize(("token", "header"), [("", None), ("t", "Bearer t")])
async def test_exec_plugin_may_return_a_client_certificate(plugin: Plugin, token: str, header: str | None) -> None:
    cert, key = ALICE.cert_pem.decode(), ALICE.key_pem.decode()
    plugin.answer(token=token, clientCertificateData=cert, clientKeyData=key)
    assert await plugin.credentials().current() == Identity(header, ALICE.client_certificate)


@pytest.mark.real_time
async def test_exec_plugin_runs_again_shortly_before_expiration(plugin: Plugin) -> None:
    plugin.answer(token="t1", ends_in=10 * MINUTE)
    credentials = plugin.credentials()
    await credentials.current()
    plugin.answer(token="t2", ends_in=20 * MINUTE)
    plugin.clock.move_wall_clock(8 * MINUTE)
    assert await credentials.current() == Identity("Bearer t1")
    plugin.clock.move_wall_clock(MINUTE)
    assert await credentials.current() == Identity("Bearer t2")


@pytest.mark.real_time
async def test_exec_plugin_with_expired_credentials_is_not_run_for_every_request(plugin: Plugin) -> None:
    """Plugins cache until the very end, and clocks differ."""
    plugin.answer(token="t1", ends_in=-MINUTE)
    credentials = plugin.credentials()
    await credentials.current()
    await credentials.current()
    assert plugin.runs == 1
    plugin.clock.move_wall_clock(timedelta(seconds=10))
    await credentials.current()
    assert plugin.runs == 2


@pytest.mark.real_time
async def test_failing_exec_plugin_is_ignored_until_its_credentials_expire(plugin: Plugin) -> None:
    plugin.answer(token="t1", ends_in=10 * MINUTE)
    credentials = plugin.credentials()
    await credentials.current()
    plugin.script("exit 1")
    plugin.clock.move_wall_clock(9.5 * MINUTE)
    assert await credentials.current() == Identity("Bearer t1")
    plugin.clock.move_wall_clock(MINUTE)
    with pytest.raises(CredentialsError, match="exit code 1"):
        await credentials.current()


@pytest.mark.real_time
async def test_exec_plugin_runs_again_after_its_credentials_are_rejected(plugin: Plugin) -> None:
    credentials = plugin.credentials()
    refused = await credentials.current()
    plugin.answer(token="t2")
    await credentials.refresh(refused)
    assert await credentials.current() == Identity("Bearer t2")
    await credentials.refresh(refused)
    assert plugin.runs == 2, "t1 was refused once more, but t2 is in use already"


@pytest.mark.real_time
async def test_concurrent_requests_share_one_exec_plugin_run(plugin: Plugin) -> None:
    credentials = plugin.credentials()
    first = await asyncio.gather(*(credentials.current() for _ in range(20)))
    assert plugin.runs == 1
    await asyncio.gather(*(credentials.refresh(identity) for identity in first))
    await asyncio.gather(*(credentials.current() for _ in range(20)))
    assert plugin.runs == 2, "also if the plugin gives the same token again"


@pytest.mark.real_time
async def test_concurrent_requests_share_an_exec_plugin_failure(plugin: Plugin) -> None:
    plugin.script('printf "x" >> runs; exit 3')
    credentials = plugin.credentials()
    results = await asyncio.gather(*(credentials.current() for _ in range(20)), return_exceptions=True)
    failure = f"it failed with exit code 3; run it by hand: {plugin.path}"
    assert {str(result) for result in results} == {f"exec plugin {plugin.path} of user 'alice' in config: {failure}"}
    assert plugin.runs == 1


@pytest.mark.real_time
async def test_exec_plugin_is_run_by_another_request_when_the_first_is_cancelled(plugin: Plugin, clock: Clock) -> None:
    plugin.script('printf "x" >> runs; test -e slow && rm slow && touch begun && sleep 60; cat answer')
    (plugin.folder / "slow").touch()
    credentials = plugin.credentials()
    async with asyncio.TaskGroup() as group:
        impatient = group.create_task(credentials.current())
        patient = group.create_task(credentials.current())
        while not (plugin.folder / "begun").exists():
            await clock.sleep(timedelta(milliseconds=5))
        impatient.cancel()
    assert patient.result() == Identity("Bearer t1")
    assert plugin.runs == 2


@pytest.mark.real_time
async def test_exec_plugin_receives_args_environment_and_exec_info(plugin: Plugin) -> None:
    plugin.script('printf "%s|%s|%s" "$1" "$REGION" "$KUBERNETES_EXEC_INFO" > told; cat answer')
    cluster = {"server": "https://api", "config": {"audience": "x"}}
    await plugin.credentials(args=("get-token",), env=(("REGION", "eu"),), cluster=cluster).current()
    argument, region, info = (plugin.folder / "told").read_text().split("|")
    assert (argument, region) == ("get-token", "eu")
    assert msgspec.json.decode(info) == {
        "kind": "ExecCredential",
        "apiVersion": V1,
        "spec": {"interactive": False, "cluster": cluster},
    }


@pytest.mark.real_time
async def test_exec_plugin_of_a_kubeconfig_receives_the_cluster_info(plugin: Plugin) -> None:
    plugin.script('printf "%s" "$KUBERNETES_EXEC_INFO" > told; cat answer')
    config = f"""
    current-context: c
    contexts: [{{name: c, context: {{cluster: k, user: u}}}}]
    clusters:
    - name: k
      cluster:
        server: https://api.example.com
        tls-server-name: api
        insecure-skip-tls-verify: true
        proxy-url: http://proxy:1
        disable-compression: true
        extensions: [{{name: client.authentication.k8s.io/exec, extension: {{audience: abc}}}}]
    users:
    - name: u
      user:
        exec:
          apiVersion: {V1}
          command: ./plugin
          provideClusterInfo: true
          interactiveMode: Never
    """
    (plugin.folder / "config").write_text(config)
    connection = load(kubeconfig=str(plugin.folder / "config"), environ=os.environ)
    assert await connection.credentials.current() == Identity("Bearer t1")
    assert msgspec.json.decode((plugin.folder / "told").read_text())["spec"]["cluster"] == {
        "server": "https://api.example.com",
        "tls-server-name": "api",
        "insecure-skip-tls-verify": True,
        "proxy-url": "http://proxy:1",
        "disable-compression": True,
        "config": {"audience": "abc"},
    }


@pytest.mark.real_time
async def test_missing_exec_plugin_is_an_error_with_its_install_hint(plugin: Plugin) -> None:
    assert await plugin.error_text(command="no-such-plugin", install_hint="brew install\n  the-plugin") == (
        "exec plugin no-such-plugin of user 'alice' in config: there is no such program; brew install the-plugin"
    )
    assert "there is no such program, install it" in await plugin.error_text(command="no-such-plugin")


@pytest.mark.real_time
async def test_exec_plugin_that_is_not_executable_is_an_error_with_the_reason(plugin: Plugin) -> None:
    plugin.path.chmod(0o600)
    assert (await plugin.error_text()).endswith("it cannot be run: Permission denied")


@pytest.mark.real_time
async def test_failing_exec_plugin_is_an_error_with_its_last_stderr_line(plugin: Plugin) -> None:
    plugin.script(r'printf "noise\n\033[31mUnable to locate credentials\033[0m\n\n" >&2; exit 255')
    assert (await plugin.error_text(args=("get-token", "--cluster", "my cluster"))).endswith(
        "it failed with exit code 255: Unable to locate credentials; "
        f"run it by hand: {plugin.path} get-token --cluster 'my cluster'"
    )


@pytest.mark.real_time
async def test_secrets_in_exec_plugin_arguments_are_redacted(plugin: Plugin) -> None:
    plugin.script("exit 1")
    complaint = await plugin.error_text(args=("--oidc-client-secret=hush", "--password", "hush", "login"))
    assert "hush" not in complaint
    assert complaint.endswith("'--oidc-client-secret=(hidden)' --password '(hidden)' login")


@pytest.mark.real_time
async def test_exec_plugin_without_output_is_an_error_with_the_command_to_run(plugin: Plugin) -> None:
    plugin.script("true")
    assert (await plugin.error_text()).endswith(f"it printed nothing; run it by hand: {plugin.path}")


@pytest.mark.real_time
async def test_hanging_exec_plugin_is_killed_with_its_children(
    plugin: Plugin, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exec_plugin, "_TIMEOUT", timedelta(milliseconds=200))
    plugin.script("sleep 60 & echo $! > child; wait")
    assert (await plugin.error_text()).endswith(f"it did not end within 0.2 s; run it by hand: {plugin.path}")
    async with asyncio.timeout(5):
        while _is_alive(int((plugin.folder / "child").read_text())):
            await clock.sleep(timedelta(milliseconds=5))


def _is_alive(pid: int) -> bool:
    status = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, check=False)
    return status.stdout.strip()[:1] not in {b"", b"Z"}


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("printed", "complaint"),
    [
        ("Please log in", "expected an ExecCredential in JSON on its output"),
        ("{}", f"expected {V1} ExecCredential on its output, found no apiVersion no kind"),
        (
            '{"apiVersion":"client.authentication.k8s.io/v1beta1","kind":"ExecCredential","status":{"token":"t"}}',
            f"expected {V1} ExecCredential on its output, found client.authentication.k8s.io/v1beta1 ExecCredential",
        ),
        ('{"apiVersion":"%s","kind":"ExecCredential"}', "expected a token or a certificate in the status it printed"),
        ('{"apiVersion":"%s","kind":"ExecCredential","status":{"token":null}}', "expected a token or a certificate"),
        (
            '{"apiVersion":"%s","kind":"ExecCredential","status":{"clientKeyData":"k"}}',
            "it printed a certificate without",
        ),
        (
            '{"apiVersion":"%s","kind":"ExecCredential","status":{"clientKeyData":"k","clientCertificateData":"c"}}',
            "the client certificate or private key of user 'alice' in config cannot be used",
        ),
        (
            '{"apiVersion":"%s","kind":"ExecCredential","status":{"token":"t","expirationTimestamp":"soon"}}',
            "expected an ExecCredential in JSON on its output",
        ),
        (
            '{"apiVersion":"%s","kind":"ExecCredential","status":{"token":"t","expirationTimestamp":"2026-01-01T00:00:00"}}',
            "expected a time zone in the expirationTimestamp",
        ),
        ('{"apiVersion":"%s","kind":"ExecCredential","status":{"token":"a b"}}', "its token is no bearer token"),
    ],
)
async def test_invalid_exec_plugin_output_is_an_error_with_the_expected_format(
    plugin: Plugin, printed: str, complaint: str
) -> None:
    (plugin.folder / "answer").write_text(printed.replace("%s", V1))
    assert complaint in await plugin.error_text()


@pytest.mark.real_time
async def test_interactive_exec_plugin_is_not_run_without_a_terminal(
    plugin: Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert "it needs a person at a terminal (interactiveMode: Always)" in await plugin.error_text(
        interactive_mode=InteractiveMode.ALWAYS
    )
    assert plugin.runs == 0


@pytest.mark.real_time
@pytest.mark.parametrize(("mode", "interactive"), [("Never", False), ("IfAvailable", True), ("Always", True)])
async def test_exec_plugin_is_interactive_at_a_terminal(
    plugin: Plugin, monkeypatch: pytest.MonkeyPatch, mode: str, *, interactive: bool
) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    plugin.script('printf "%s" "$KUBERNETES_EXEC_INFO" > told; cat answer')
    await plugin.credentials(interactive_mode=InteractiveMode(mode)).current()
    assert msgspec.json.decode((plugin.folder / "told").read_text())["spec"] == {"interactive": interactive}
