"""Attacks on the dashboard, against the running operator: they are refused or contained, and the operator goes on."""

import asyncio
import itertools
import json
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

import aiohttp
import pytest

from haulout.dashboard.api import requests as request_body
from haulout.dashboard.api.types import AuthMode
from haulout.dashboard.auth import middleware
from haulout.dashboard.auth.permissions import Impersonation
from haulout.dashboard.auth.settings import ProxySettings
from haulout.httpserver.delegated_auth import AccessDecision, DelegatedAuth
from support.builders.objects import a_node
from support.dashboard.running_dashboard import LOCAL, SAME_ORIGIN, DashboardUnderTest, running_dashboard

pytestmark = pytest.mark.real_time

READS = ("/summary", "/nodes", "/nodes/n1", "/notices", "/configuration", "/health", "/timeline", "/events")
START = {"action": "start", "node": "n1"}


async def assert_nothing_was_done(world: DashboardUnderTest) -> None:
    assert not world.api.objects("nodemaintenances")
    assert (await world.request("/nodes", token="vera")).status == 200, "those who may are still answered"


async def test_requests_without_a_valid_token_are_unauthorized(tmp_path: Path) -> None:
    bearer_tokens = "Bearer wrong", "Basic dmVyYTp2ZXJh", "vera", "Bearer \xe9"
    cookie_tokens = "haulout-token=wrong", "haulout-token=a b"
    wrong = [{"Authorization": item} for item in bearer_tokens] + [{"Cookie": item} for item in cookie_tokens]
    forged = {"X-Forwarded-User": "olga", "X-Remote-User": "olga", "Impersonate-User": "olga"}
    async with running_dashboard(tmp_path) as world:
        for headers in ({}, *wrong, forged, {"X-Haulout-Forwarded": LOCAL}):
            for path in READS[:3]:
                response = await world.request(path, headers=headers)
                assert (response.status, list(response.body)) == (401, ["error", "status"]), (path, headers)
        for path in READS:
            assert (await world.request(path)).status == 401, path
            assert (await world.request(path, "HEAD")).status in (401, 404), path
        assert (await world.request("/configuration/check", "POST", json={"text": ""})).status == 401
        for path_variant in ("//nodes", "/%6eodes", "/nodes/../nodes", "/nodes/", "/session/../nodes"):
            assert b"n1" not in json.dumps((await world.request(path_variant)).body, default=str).encode(), path_variant
        async with world.session.get(f"{world.base}/api/v1/info") as info:
            assert info.status == 401
        assert (await world.act("")).status == 401
        await assert_nothing_was_done(world)


async def test_page_and_session_are_public(tmp_path: Path) -> None:
    async with running_dashboard(tmp_path) as world:
        assert (await world.request("/session")).body == {"mode": "token"}
        assert (await world.request("/openapi.json")).status == 200
        async with world.session.get(f"{world.base}/static/") as response:
            assert response.status == 200
            assert "default-src 'none'" in response.headers["Content-Security-Policy"]


async def test_role_of_the_user_limits_reads_and_actions(tmp_path: Path) -> None:
    async with running_dashboard(tmp_path) as world:
        sessions = {name: (await world.request("/session", token=name)).body for name in ("vera", "olga", "sam")}
        assert {
            name: (session.get("mayRead", False), session.get("actions")) for name, session in sessions.items()
        } == {
            "vera": (True, None),
            "olga": (True, ["approve", "hold", "release", "start", "cancel"]),
            "sam": (False, None),
        }
        refused = await world.request("/nodes", token="sam")
        assert (refused.status, refused.error) == (403, "sam cannot get /haulout/dashboard")
        for node in ("n1", "n9"):
            response = await world.act("sam", action="start", node=node)
            assert (response.status, response.error) == (403, "sam cannot get /haulout/dashboard"), "what there is, too"
        refused = await world.act("vera", **START)
        assert refused.status == 403
        assert refused.error.startswith("vera is not allowed to do this: ")
        assert 'User "vera" cannot create resource "nodemaintenances"' in refused.error
        await assert_nothing_was_done(world)
        done = await world.act("olga", **START)
        assert (done.status, done.body["message"]) == (
            200,
            "Created NodeMaintenance n1: node n1 is cordoned and drained within the budget.",
        )


async def test_token_user_acts_without_impersonation(tmp_path: Path) -> None:
    async with running_dashboard(tmp_path, impersonation=None) as world:
        actions = (await world.request("/session", token="olga")).body["actions"]
        assert actions == ["approve", "hold", "release", "start", "cancel"]
        assert (await world.act("olga", **START)).status == 200
        assert next(event.username for event in world.api.history if event.kind.plural == "nodemaintenances") == "olga"


@pytest.mark.parametrize("acts", [Impersonation.CONSTRAINED, Impersonation.UNRESTRICTED, None])
async def test_proxy_user_acts_only_with_an_impersonation_account(tmp_path: Path, acts: Impersonation | None) -> None:
    secret = tmp_path / "secret"
    secret.write_text("correct horse battery\n", encoding="utf-8")
    olga = {"X-Forwarded-User": "olga", "X-Haulout-Proxy-Secret": "correct horse battery", **SAME_ORIGIN}
    async with running_dashboard(
        tmp_path, AuthMode.PROXY, proxy=ProxySettings(secret_file=secret), impersonation=acts
    ) as world:
        session = await world.request("/session", headers=olga)
        cookie = session.headers["Set-Cookie"].partition(";")[0]
        proven = {**olga, "Cookie": cookie, "X-Haulout-Csrf": session.body["csrf"]}
        response = await world.act("", headers=proven, **START)
        if acts is not None:
            assert (response.status, len(session.body["actions"])) == (200, 5)
            return
        assert (response.status, session.body.get("actions", [])) == (403, [])
        assert "haulout manifests --dashboard-auth proxy --dashboard-actions constrained" in response.error
        await assert_nothing_was_done(world)


async def test_browser_session_covers_login_action_and_logout(tmp_path: Path) -> None:
    async with running_dashboard(tmp_path) as world:
        login_response = await world.request("/session", "POST", json={"token": "olga"}, headers=SAME_ORIGIN)
        cookie = login_response.headers["Set-Cookie"]
        assert cookie == "haulout-token=olga; Max-Age=43200; HttpOnly; SameSite=Strict"
        browser, csrf = await world.log_in("olga")
        session = (await world.request("/session", headers=browser)).body
        assert (session["user"], session["csrf"]) == ("olga", csrf)
        assert (await world.request("/nodes", headers=browser)).status == 200
        assert (await world.act("", headers={**browser, "X-Haulout-Csrf": csrf}, **START)).status == 200
        out = await world.request("/session", "DELETE", headers=browser)
        assert out.headers.getall("Set-Cookie")[0].startswith("haulout-token=; Max-Age=0")


async def test_session_cookie_requires_tls_outside_loopback(tmp_path: Path) -> None:
    async with running_dashboard(tmp_path) as world:
        plain = {"Host": "haulout.example.com", "Origin": "http://haulout.example.com"}
        response = await world.request("/session", "POST", json={"token": "olga"}, headers=plain)
        assert (response.status, "https" in response.error) == (403, True)
        assert "Set-Cookie" not in response.headers
        for safe in (
            {"Host": "haulout.example.com"},
            {"X-Forwarded-Proto": "https"},
            {"Origin": "https://h.example.com"},
        ):
            more = {"X-Forwarded-Host": "h.example.com"}
            response = await world.request("/session", "POST", json={"token": "olga"}, headers={**more, **safe})
            assert response.headers["Set-Cookie"].endswith("; Secure"), safe


async def test_cross_site_requests_are_refused(tmp_path: Path) -> None:
    async with running_dashboard(tmp_path) as world:
        browser, csrf = await world.log_in("olga")
        cookie, proof = {"Cookie": browser["Cookie"]}, {"X-Haulout-Csrf": csrf}
        host = world.base.removeprefix("http://")
        elsewhere: list[dict[str, str]] = [
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"},
            {"Sec-Fetch-Site": "none"},
            {"Origin": "https://evil.example.com"},
            {"Origin": "null"},
            {"Origin": f"http://{host}.evil.example.com"},
            {"Origin": f"http://{host}@evil.example.com"},
            {"Origin": "["},
            {"Sec-Fetch-Site": "cross-site", "Origin": f"http://{host}"},
        ]
        for headers in elsewhere:
            response = await world.act("", headers={**cookie, **proof, **headers}, **START)
            assert (response.status, "cross-site requests" in response.error) == (403, True), headers
            response = await world.request("/session", "POST", json={"token": "olga"}, headers=headers)
            assert (response.status, "Set-Cookie" in response.headers) == (403, False), headers
        unproven: tuple[dict[str, str], ...] = (
            {},
            {"X-Haulout-Csrf": ""},
            {"X-Haulout-Csrf": csrf[:-1]},
            {"X-Haulout-Csrf": "0" * 64},
        )
        other = (await world.request("/session", headers={"Cookie": "haulout-token=vera"})).body["csrf"]
        for headers in (*unproven, {"X-Haulout-Csrf": other}):
            response = await world.act("", headers={**cookie, **SAME_ORIGIN, **headers}, **START)
            assert (response.status, "X-Haulout-Csrf" in response.error) == (403, True), headers
        form = aiohttp.FormData({"action": "start", "node": "n1"})
        response = await world.request("/actions", "POST", data=form, headers={**cookie, **proof, **SAME_ORIGIN})
        assert response.status == 415
        text = {**cookie, **proof, **SAME_ORIGIN, "Content-Type": "text/plain"}
        assert (await world.request("/actions", "POST", data=json.dumps(START), headers=text)).status == 415
        preflight = {"Origin": "https://evil.example.com", "Access-Control-Request-Method": "POST"}
        response = await world.request("/actions", "OPTIONS", headers=preflight)
        assert not [header for header in response.headers if header.lower().startswith("access-control-")]
        await assert_nothing_was_done(world)


async def test_only_a_trusted_proxy_may_name_the_user(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("correct horse battery\n", encoding="utf-8")
    olga, bearer_tokens = {"X-Forwarded-User": "olga"}, {"X-Haulout-Proxy-Secret": "correct horse battery"}
    async with running_dashboard(tmp_path, AuthMode.PROXY, proxy=ProxySettings(secret_file=secret)) as world:
        for forged in ({}, {"X-Haulout-Proxy-Secret": ""}, {"X-Haulout-Proxy-Secret": "correct horse"}):
            assert (await world.request("/nodes", headers={**olga, **forged})).status == 401, forged
            assert (await world.act("", headers={**olga, **forged}, **START)).status == 401, forged
        for user in ("system:admin", "system:serviceaccount:kube-system:root"):
            headers = {"X-Forwarded-User": user, **bearer_tokens}
            assert (await world.request("/nodes", headers=headers)).status == 401, user
        masters = {**olga, **bearer_tokens, "X-Forwarded-Groups": "ops, system:masters"}
        assert (await world.request("/nodes", headers=masters)).status == 401
        twice = [("X-Forwarded-User", "sam"), ("X-Forwarded-User", "olga"), *bearer_tokens.items()]
        async with world.session.get(f"{world.base}/api/v2/nodes", headers=twice) as response:
            assert response.status == 401
        assert (await world.request("/nodes", headers={**olga, **bearer_tokens})).status == 200
        assert (await world.request("/nodes", token="vera")).status == 200, "programs show tokens here, too"
        assert (await world.act("", headers={**olga, **bearer_tokens, **SAME_ORIGIN}, **START)).status == 403, (
            "nothing is proven"
        )
        await assert_nothing_was_done(world)
        session = await world.request("/session", headers={**olga, **bearer_tokens, **SAME_ORIGIN})
        cookie = session.headers["Set-Cookie"].partition(";")[0]
        proven = {**olga, **bearer_tokens, **SAME_ORIGIN, "Cookie": cookie, "X-Haulout-Csrf": session.body["csrf"]}
        assert (await world.act("", headers=proven | {"X-Forwarded-User": "vera"}, **START)).status == 403
        assert (await world.act("", headers=proven, **START)).status == 200
        secret.write_text("another one, in the next month", encoding="utf-8")
        assert (await world.request("/nodes", headers={**olga, **bearer_tokens})).status == 401


async def test_actions_are_refused_with_authentication_off(tmp_path: Path) -> None:
    async with running_dashboard(tmp_path, AuthMode.OFF) as world:
        assert (await world.request("/session", token="olga")).body == {"mode": "off", "mayRead": True}
        assert (await world.request("/nodes")).status == 200
        for headers in ({}, {"X-Forwarded-User": "olga"}):
            response = await world.act("olga", headers=headers, **START)
            assert (response.status, "--dashboard-auth=off" in response.error) == (403, True)
        assert (await world.request("/session", "POST", json={"token": "olga"})).status == 503
        await assert_nothing_was_done(world)


async def test_oversized_slow_and_invalid_bodies_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_body, "_SENT_WITHIN", timedelta(milliseconds=200))

    async def slowly() -> object:
        yield b'{"action": '
        await asyncio.Event().wait()

    async with running_dashboard(tmp_path) as world:
        json_type = {"Content-Type": "application/json"}
        cases: list[tuple[object, int]] = [
            (b'{"action":"start","reason":"' + b"x" * (64 << 10) + b'"}', 413),
            (b"[" * 60_000, 400),
            (b'{"action":"start","node":"n1"', 400),
            (b'{"action":"\xff"}', 400),
            (b'{"action":"reboot","node":"n1"}', 400),
            (b'{"action":"start","node":"n1","uid":"1"}', 400),
            (b'{"action":"start","node":"../secrets"}', 400),
            (b'{"action":"start","node":"<script>alert(1)</script>"}', 400),
            (b'{"action":"start"}', 400),
            (b'{"action":"start","node":"n1","profile":"os"}', 400),
            (b'{"action":"cancel","node":"n1"}', 400),
            (b'{"action":"cancel","maintenance":"a","notice":"b"}', 400),
            (b'{"action":"start","node":"n1","reason":"\\u0000"}', 400),
            (b'{"action":"start","node":"n9"}', 404),
        ]
        for body, status in cases:
            response = await world.request("/actions", "POST", token="olga", data=body, headers=json_type)
            assert response.status == status, body
        response = await world.request("/actions", "POST", token="olga", data=slowly(), headers=json_type)
        assert response.status == 408
        huge = b'{"token":"' + b"x" * 5_000 + b'"}'
        assert (await world.request("/session", "POST", data=huge, headers=json_type)).status == 400
        await assert_nothing_was_done(world)


def token_reviews(world: DashboardUnderTest) -> int:
    requests = world.client.transport.requests  # type: ignore[attr-defined] # of the sandbox
    return sum(request.request.path.endswith("/tokenreviews") for request in requests)


async def test_wrong_tokens_are_rate_limited_and_known_users_are_not(tmp_path: Path) -> None:
    async with running_dashboard(tmp_path) as world:
        assert (await world.request("/nodes", token="vera")).status == 200
        statuses = [(await world.request("/nodes", token=f"guess-{number}")).status for number in range(15)]
        assert statuses == [401] * 10 + [429] * 5
        response = await world.request("/session", "POST", json={"token": "guess"}, headers=SAME_ORIGIN)
        assert (response.status, 1 <= int(response.headers["Retry-After"]) <= 6) == (429, True)
        assert (await world.request("/nodes", token="vera")).status == 200


async def test_new_valid_token_is_accepted_while_others_guess_from_the_same_address(tmp_path: Path) -> None:
    async with running_dashboard(tmp_path) as world, asyncio.TaskGroup() as group:

        async def guess(guesser: int) -> None:
            for number in itertools.count():
                await world.request("/nodes", token=f"guess-{guesser}-{number}")

        guessers = [group.create_task(guess(number)) for number in range(30)]
        await world.wait_until(lambda: token_reviews(world) > 50)
        assert (await world.request("/nodes", token="vera")).status == 200
        assert (await world.request("/session", "POST", json={"token": "olga"}, headers=SAME_ORIGIN)).status == 200
        assert (await world.act("olga", **START)).status == 200
        for guesser in guessers:
            guesser.cancel()


async def test_wrong_tokens_do_not_evict_a_valid_token_from_the_cache(tmp_path: Path) -> None:
    async with running_dashboard(tmp_path) as world:
        auth = DelegatedAuth(world.client)
        assert not isinstance(await auth.authenticate("vera"), AccessDecision)
        for number in range(1200):
            await auth.authenticate(f"guess-{number}")
        before = token_reviews(world)
        assert not isinstance(await auth.authenticate("vera"), AccessDecision)
        assert (token_reviews(world), auth.is_known("vera"), auth.is_known("guess-1")) == (before, True, False)


@pytest.mark.usefixtures("no_refill")
async def test_user_is_served_while_an_attacker_floods_with_forged_headers_and_wrong_tokens(
    tmp_path: Path,
) -> None:
    """All of them have the same address, as behind an Ingress."""
    answered = 0

    async with running_dashboard(tmp_path) as world:

        async def attack(attacker: int) -> None:
            nonlocal answered
            for number in range(100):
                forged = {"X-Haulout-Forwarded": f"10.{attacker}.0.{number}"}
                wrong = {"Authorization": f"Bearer wrong-{attacker}"} if number % 2 else {}
                response = await world.request("/nodes", headers={**forged, **wrong})
                assert response.status in (401, 429)
                answered += response.status != 429

        async def use() -> list[int]:
            return [(await world.request("/nodes", token="vera")).status for _ in range(100)]

        *_, statuses = await asyncio.gather(*(attack(number) for number in range(20)), use())
        assert statuses == [200] * 100
        assert answered <= 600 + 10


@pytest.mark.usefixtures("no_refill")
async def test_rate_limit_of_one_user_does_not_affect_others(tmp_path: Path) -> None:
    async with running_dashboard(tmp_path) as world:
        statuses = await asyncio.gather(*(world.request("/session", token="sam") for _ in range(900)))
        assert {response.status for response in statuses} == {200, 429}
        assert (await world.request("/nodes", token="vera")).status == 200
        assert (await world.request("/session")).status == 200


@pytest.mark.usefixtures("no_refill")
async def test_proxy_users_have_separate_rate_limits(tmp_path: Path) -> None:
    async with running_dashboard(tmp_path, AuthMode.PROXY) as world:
        sam, vera = {"X-Forwarded-User": "sam"}, {"X-Forwarded-User": "vera"}
        statuses = await asyncio.gather(*(world.request("/nodes", headers=sam) for _ in range(900)))
        assert {response.status for response in statuses} == {403, 429}
        assert (await world.request("/nodes", headers=vera)).status == 200


async def test_forged_forwarded_address_does_not_raise_the_stream_limit(tmp_path: Path) -> None:
    async with running_dashboard(tmp_path, AuthMode.OFF) as world, AsyncExitStack() as stack:
        http_session = await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
        statuses = []
        for number in range(25):
            headers = {"X-Haulout-Forwarded": f"10.0.0.{number}"}
            stream = http_session.get(f"{world.base}/api/v2/events", headers=headers)
            statuses.append((await stack.enter_async_context(stream)).status)
        assert statuses == [200] * 20 + [503] * 5


async def test_actions_are_rate_limited_per_user(tmp_path: Path) -> None:
    async with running_dashboard(tmp_path) as world:
        statuses = [(await world.act("olga", action="start", node="n1")).status for _ in range(35)]
        assert statuses.count(200) in range(30, 33)
        response = await world.act("olga", action="start", node="n1")
        assert (response.status, "olga" in response.error, response.headers["Retry-After"] in ("1", "2")) == (
            429,
            True,
            True,
        )
        assert (await world.act("vera", action="start", node="n2")).status == 403, "others do not wait for her"


async def test_many_streams_and_slow_clients_do_not_stop_the_operator(tmp_path: Path) -> None:
    async with running_dashboard(tmp_path) as world, AsyncExitStack() as stack:
        connector = aiohttp.TCPConnector(limit=0)
        http_session = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
        vera = {"Authorization": "Bearer vera"}

        async def open_stream() -> int:
            url = f"{world.base}/api/v2/events"
            return (await stack.enter_async_context(http_session.get(url, headers=vera))).status

        statuses = [status for _ in range(10) for status in await asyncio.gather(*(open_stream() for _ in range(100)))]
        assert statuses.count(200) == 20, "as many as one address may have"
        assert set(statuses) <= {200, 429, 503}
        for _ in range(100):  # who never ends a request
            _, writer = await asyncio.open_connection(LOCAL, int(world.base.rpartition(":")[2]))
            stack.callback(writer.close)
            writer.write(b"POST /api/v2/actions HTTP/1.1\r\nHost: x\r\nX-A: ")
        await world.wait_until(lambda: world.operator_status.source is not None)
        done = await world.act("olga", **START)
        assert done.status == 200
        await world.wait_until(
            lambda: world.api.get("nodemaintenances", "n1").get("status", {}).get("phase") == "Succeeded"
        )


async def test_open_stream_is_reauthorized_periodically(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middleware, "_JUDGED_AGAIN_AFTER", timedelta())
    async with running_dashboard(tmp_path) as world:
        events = await world.request("/events", token="vera")
        assert (events.status, events.body.startswith(b"event: hello")) == (200, True)


async def test_scripts_in_names_and_reasons_are_served_as_json_text(tmp_path: Path) -> None:
    script = "<script>alert(1)</script><img src=x onerror=alert(1)>"
    node = a_node("n1")
    node["metadata"]["annotations"] = {"example.com/note": script}
    async with running_dashboard(tmp_path, nodes=[node]) as world:
        assert (await world.act("olga", action="start", node="n1", reason=script)).status == 200
        response = await world.request("/nodes/n1", token="vera")
        assert response.headers["Content-Type"].startswith("application/json")
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert (
            (await world.request("/nodes/%3Cscript%3E", token="vera"))
            .headers["Content-Type"]
            .startswith("application/json")
        )
        [order] = world.api.objects("nodemaintenances")
        assert order["spec"]["reason"] == script
        event = next(
            item for item in world.api.objects("events") if item["reason"] == "MaintenanceCreatedFromDashboard"
        )
        done = "Created NodeMaintenance n1: node n1 is cordoned and drained within the budget."
        assert event["message"] == f"olga, from the dashboard: {done} ({script})"


async def test_tokens_are_not_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    async with running_dashboard(tmp_path) as world:
        await world.log_in("olga")
        for token in ("olga", "sesame-open"):
            await world.request("/nodes", token=token)
            await world.request("/nodes", headers={"Cookie": f"haulout-token={token}"})
            await world.request("/session", "POST", json={"token": token})
        await world.request("/session", "POST", json={"token": "sesame-open", "more": 1})
    assert "sesame" not in caplog.text
