"""Rate limits, origins, trusted proxies and settings of the dashboard's access."""

from datetime import timedelta
from pathlib import Path

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from haulout.cli.connect import authorization_header, cookie_header
from haulout.cli.entry import main
from haulout.cli.run import cluster_mode, management_mode
from haulout.cli.run import sandbox_mode as play
from haulout.core.clock import Clock
from haulout.dashboard.api.types import AuthMode
from haulout.dashboard.auth import cookies
from haulout.dashboard.auth.cookies import TOKEN_COOKIE
from haulout.dashboard.auth.rate_limits import TokenBuckets
from haulout.dashboard.auth.settings import AccessSettings, ProxySettings, parse_network
from haulout.dashboard.auth.trusted_proxy import TrustedProxy
from haulout.errors import UsageError
from haulout.httpserver.delegated_auth import ExpiringCache, User


def headers(**given: str) -> CIMultiDictProxy[str]:
    return CIMultiDictProxy(CIMultiDict((name.replace("_", "-"), item) for name, item in given.items()))


async def test_token_bucket_allows_a_burst_and_refills(clock: Clock) -> None:
    buckets = TokenBuckets(clock, burst=3, refill=timedelta(seconds=10))
    assert [buckets.take("a") for _ in range(5)] == [0, 0, 0, 10, 10]
    assert buckets.take("b") == 0
    await clock.sleep(timedelta(seconds=4))
    assert buckets.take("a") == 6
    await clock.sleep(timedelta(seconds=6))
    assert [buckets.take("a"), buckets.take("a")] == [0, 10]
    await clock.sleep(timedelta(hours=1))
    assert [buckets.take("a") for _ in range(4)] == [0, 0, 0, 10]


async def test_token_buckets_are_limited_in_number(clock: Clock) -> None:
    buckets = TokenBuckets(clock, burst=1, refill=timedelta(seconds=10), max_keys=100)
    for number in range(1000):
        buckets.take(str(number))
    assert len(buckets) == 100
    assert buckets.take("999") == 10


async def test_expiring_cache_drops_entries_after_the_ttl(clock: Clock) -> None:
    memory: ExpiringCache[str, int] = ExpiringCache(clock, max_size=2)
    for number, key in enumerate("abc"):
        memory.put(key, number, ttl=timedelta(seconds=10))
    assert [memory.get(item) for item in "abc"] == [None, 1, 2]
    await clock.sleep(timedelta(seconds=10))
    assert memory.get("c") is None


@pytest.mark.parametrize(
    ("given", "same_origin"),
    [
        ({}, True),
        ({"Sec_Fetch_Site": "same-origin"}, True),
        ({"Sec_Fetch_Site": "cross-site"}, False),
        ({"Sec_Fetch_Site": "same-site", "Origin": "https://h.example.com", "Host": "h.example.com"}, False),
        ({"Origin": "https://h.example.com", "Host": "H.example.com"}, True),
        ({"Origin": "https://h.example.com:444", "Host": "h.example.com"}, False),
        ({"Origin": "https://h.example.com", "Host": "10.0.0.1:8080", "X_Forwarded_Host": "h.example.com"}, True),
        ({"Origin": "https://evil.example.com", "Host": "h.example.com"}, False),
        ({"Origin": "null", "Host": "null"}, False),
    ],
)
def test_same_origin_is_decided_from_fetch_metadata_origin_and_host(
    given: dict[str, str], *, same_origin: bool
) -> None:
    assert cookies.is_same_origin(headers(**given)) is same_origin


@pytest.mark.parametrize(
    ("given", "local"),
    [
        ({"Host": "localhost:8080"}, True),
        ({"Host": "127.0.0.1:8080"}, True),
        ({"Host": "[::1]:8080"}, True),
        ({"Host": "localhost:8080", "X_Forwarded_Proto": "https"}, False),
        ({"Host": "localhost.example.com"}, False),
        ({"Host": "[::"}, False),
        ({}, False),
    ],
)
def test_only_loopback_hosts_are_local(given: dict[str, str], *, local: bool) -> None:
    assert cookies.is_local(headers(**given)) is local


@pytest.mark.parametrize(
    ("peer", "believed"),
    [("127.0.0.1", True), ("::1", True), ("::ffff:127.0.0.1", True), ("10.0.0.7", False), ("", False), (None, False)],
)
def test_proxy_is_trusted_on_loopback_by_default(peer: str | None, *, believed: bool) -> None:
    headers_sent = headers(X_Forwarded_User="olga", X_Forwarded_Groups="ops, dev,")
    assert (TrustedProxy(ProxySettings()).user(headers_sent, peer=peer) is not None) is believed


def test_proxy_is_trusted_from_its_network_and_users_get_a_prefix() -> None:
    settings = ProxySettings(networks=(parse_network("10.1.0.0/16"),), prefix="oidc:", user_header="X-Auth-User")
    headers_sent = headers(X_Auth_User="olga", X_Forwarded_Groups="ops, dev,")
    assert TrustedProxy(settings).user(headers_sent, peer="10.1.2.3") == User("oidc:olga", ("oidc:ops", "oidc:dev"))
    assert TrustedProxy(settings).user(headers_sent, peer="127.0.0.1") is None
    assert TrustedProxy(settings).user(headers(X_Forwarded_User="olga"), peer="10.1.2.3") is None
    prefixed = headers(X_Auth_User="system:admin")
    assert TrustedProxy(settings).user(prefixed, peer="10.1.2.3") == User("oidc:system:admin")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--dashboard-proxy-from", "10.0.0.0/8"], "only with --dashboard-auth=proxy"),
        (["--dashboard-auth", "proxy", "--dashboard-proxy-from", "ten"], "expected a network such as 10.0.0.0/8"),
        (["--dashboard-auth", "proxy", "--dashboard-proxy-secret-file", "SHORT"], "16 printable characters"),
        (["--dashboard-auth", "proxy", "--dashboard-proxy-secret-file", "nowhere"], "cannot be read from nowhere"),
        (
            ["--dashboard-auth=proxy", "--dashboard-proxy-from=::1", "--dashboard-proxy-secret-file=SHORT"],
            "not with --dashboard-proxy-secret-file",
        ),
        (["--dashboard-auth", "proxy", "--dashboard-proxy-user-header", "a b"], "expected the name of a header"),
        (["--sandbox", "--no-operator", "--dashboard-auth", "token"], "not with --no-operator"),
    ],
)
def test_invalid_access_options_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], expected: str
) -> None:
    (tmp_path / "short").write_text("abc", encoding="utf-8")
    given = [argument.replace("SHORT", str(tmp_path / "short")) for argument in arguments]
    with pytest.raises(SystemExit) as exited:
        main(["run", *given])
    assert (exited.value.code, expected in " ".join(capsys.readouterr().err.split())) == (2, True)


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        (["run"], AuthMode.TOKEN),
        (["run", "--mode", "management"], AuthMode.TOKEN),
        (["maintenance-controller"], AuthMode.TOKEN),
        (["runtime-extension-maintenance-controller"], AuthMode.TOKEN),
        (["run", "--sandbox"], AuthMode.OFF),
        (["run", "--dashboard-auth", "off"], AuthMode.OFF),
        (["maintenance-controller", "-dashboard-auth=off"], AuthMode.OFF),
        (["runtime-extension-maintenance-controller", "-dashboard-auth", "off"], AuthMode.OFF),
    ],
)
def test_dashboard_requires_a_token_unless_authentication_is_off(
    monkeypatch: pytest.MonkeyPatch, command: list[str], wanted: AuthMode
) -> None:
    modes: list[AuthMode] = []
    for module, name in ((cluster_mode, "run_operator_process"), (management_mode, "run_hub_process")):
        monkeypatch.setattr(module, name, lambda settings, **_: modes.append(settings.access.mode))
    monkeypatch.setattr(play, "run_sandbox_process", lambda *_, access, **__: modes.append(access.mode))
    with pytest.raises(SystemExit):
        main(command)
    assert modes == [wanted]


def test_access_settings_default_to_token() -> None:
    assert AccessSettings().mode is AuthMode.TOKEN


def test_drop_in_command_refuses_an_unsupported_auth_mode(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["maintenance-controller", "-dashboard-auth=proxy"])
    assert "-dashboard-auth: expected token or off, found 'proxy'" in capsys.readouterr().err


def test_commands_send_the_token_of_the_environment() -> None:
    environ = {"HAULOUT_TOKEN": "abc\n"}
    assert (authorization_header(environ), cookie_header(environ)) == (
        {"Authorization": "Bearer abc"},
        {"Cookie": f"{TOKEN_COOKIE}=abc"},
    )
    assert (authorization_header({}), cookie_header({})) == ({}, {})


def test_network_with_host_bits_is_refused() -> None:
    with pytest.raises(UsageError, match="expected a network"):
        parse_network("10.0.0.1/8")
