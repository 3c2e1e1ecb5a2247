"""A replica that does not lead: it lets in the same people, has the leader answer them, and performs acts itself."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from haulout.app.exposing import exposed
from haulout.app.profiles import Profiles
from haulout.app.vitals import Vitals
from haulout.web.api.shapes import AuthMode
from haulout.web.auth.settings import AccessSettings, ProxySettings
from haulout.web.listening import Address
from support.builders import a_pod
from support.outside import FakeOutside
from support.visited import HOME, LOCAL, Place, visited

pytestmark = pytest.mark.real_time

ALSO_LOCAL = "127.0.0.2"


@asynccontextmanager
async def following(place: Place, mode: AuthMode, proxy: ProxySettings | None = None) -> AsyncIterator[str]:
    """Yield where another replica answers, which knows the leader by its pod."""
    for name in ("haulout-1", "haulout-2"):
        place.api.put({**a_pod(f"{HOME}/{name}", serviceAccountName="haulout"), "status": {"podIP": LOCAL}})
    at = Address(int(place.base.rpartition(":")[2]), ALSO_LOCAL)
    access = AccessSettings(mode=mode, proxy=proxy or ProxySettings())
    assert place.vitals.profiles is not None
    vitals = Vitals(profiles=Profiles(place.vitals.profiles.configured, FakeOutside()))
    async with exposed(place.client, vitals, at=at, namespace=HOME, identity="haulout-2_y", access=access) as port:
        yield f"http://{ALSO_LOCAL}:{port}"


async def test_whoever_logged_in_at_one_replica_is_known_at_all(tmp_path: Path) -> None:
    async with visited(tmp_path) as place, following(place, AuthMode.TOKEN) as other:
        browser, csrf = await place.log_in("olga")
        answer = await place.ask("/nodes", base=other, headers=browser)
        assert (answer.status, answer.body["total"]) == (200, 2)
        assert (await place.ask("/nodes", base=other, token="vera")).status == 200
        assert (await place.ask("/nodes", base=other, token="sam")).status == 403
        assert (await place.ask("/nodes", base=other)).status == 401
        async with place.session.get(f"{other}/api/v1/info", headers={"Authorization": "Bearer vera"}) as info:
            assert (info.status, [it["node"] for it in await info.json()]) == (200, ["n1", "n2"])
        session = (await place.ask("/session", base=other, headers=browser)).body
        assert (session["user"], session["csrf"]) == ("olga", csrf)
        act = {"act": "start", "node": "n2"}
        headers = {**browser, "X-Haulout-Csrf": csrf}
        assert (await place.ask("/acts", "POST", base=other, headers=headers, json=act)).status == 200
        assert [it["metadata"]["name"] for it in place.api.objects("nodemaintenances")] == ["n2"]


async def test_behind_a_proxy_replicas_believe_each_other_by_its_secret_or_say_what_is_missing(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("correct horse battery", encoding="utf-8")
    vera = {"X-Forwarded-User": "vera"}
    proxy = ProxySettings(secret_file=secret)
    async with (
        visited(tmp_path, AuthMode.PROXY, proxy=proxy) as place,
        following(place, AuthMode.PROXY, proxy) as other,
    ):
        shown = {**vera, "X-Haulout-Proxy-Secret": "correct horse battery"}
        assert (await place.ask("/nodes", base=other, headers=shown)).status == 200
        assert (await place.ask("/nodes", base=other, headers={**shown, "X-Forwarded-User": "sam"})).status == 403
    async with visited(tmp_path, AuthMode.PROXY) as place, following(place, AuthMode.PROXY) as other:
        assert (await place.ask("/nodes", headers=vera)).status == 200
        answer = await place.ask("/nodes", base=other, headers=vera)
        assert (answer.status, "--dashboard-proxy-secret-file is needed" in answer.error) == (503, True)


@pytest.mark.usefixtures("no_refill")
async def test_clients_of_a_follower_are_limited_one_by_one_at_the_leader(tmp_path: Path) -> None:
    """The leader believes the follower, whose pod has the address that it asks from."""
    async with visited(tmp_path, AuthMode.OFF) as place, following(place, AuthMode.OFF) as other:
        headers = {"X-Haulout-Forwarded": "10.0.0.1"}
        statuses = await asyncio.gather(*(place.ask("/notices", headers=headers) for _ in range(900)))
        assert {it.status for it in statuses} == {200, 429}
        assert (await place.ask("/notices", base=other)).status == 200
        assert (await place.ask("/notices", headers={"X-Haulout-Forwarded": "10.0.0.2"})).status == 200
        async with place.session.get(f"{other}/api/v1/info") as info:
            assert info.status == 200
