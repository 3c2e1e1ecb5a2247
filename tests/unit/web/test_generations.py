"""The webhook's own certificates follow each other without a gap."""

import base64
from datetime import datetime, timedelta

import pytest

from haulout.kube.network.shown import LIFETIME
from haulout.web import generations
from haulout.web.generations import LAST_MOMENT, OVERLAP, Generation, Keys, Step
from haulout_sandbox.event_loops.virtual import EPOCH

HOSTS = ("webhook.haulout.svc", "127.0.0.1")


def step(keys: Keys | None, now: datetime, *, trusted: bool = True, hosts: tuple[str, ...] = HOSTS) -> Step:
    return generations.step(keys, hosts=hosts, now=now, trusted=trusted, make=lambda: made(now, hosts))


def made(now: datetime, hosts: tuple[str, ...] = HOSTS) -> Generation:
    return generations.generation(hosts, now=now, name="test")


def test_what_is_shown_was_trusted_for_an_hour_before_and_never_ends_over_three_years() -> None:
    now, shown = EPOCH, step(None, EPOCH)
    trusted_since = {shown.keys.served.authority: EPOCH}
    served = {shown.keys.served.authority}
    while now < EPOCH + timedelta(days=3 * 365):
        now = shown.wakes_at
        before, shown = shown, step(shown.keys, now)
        for authority in (*generations.read(data(shown.keys)).former, shown.keys.served.authority):
            trusted_since.setdefault(authority, now)
        if shown.keys.next:
            trusted_since.setdefault(shown.keys.next.authority, now)
        if shown.keys.served != before.keys.served:
            assert now - trusted_since[shown.keys.served.authority] >= OVERLAP
            assert before.keys.served.authority in shown.keys.authorities
        assert shown.keys.served.ends - now > timedelta(days=100)
        served.add(shown.keys.served.authority)
    assert len(served) == 5
    assert shown.keys.authorities.count(b"BEGIN") <= 3


def test_a_certificate_that_is_not_trusted_yet_is_not_shown_before_the_last_day() -> None:
    first = step(None, EPOCH)
    staged = step(first.keys, first.wakes_at)
    assert staged.keys.next is not None
    assert step(staged.keys, first.wakes_at + OVERLAP / 2).keys == staged.keys  # though it is trusted by now
    waiting = step(staged.keys, staged.wakes_at, trusted=False)
    assert waiting.keys == staged.keys
    assert waiting.wakes_at - staged.wakes_at == timedelta(minutes=10)
    late = step(staged.keys, EPOCH + LIFETIME - LAST_MOMENT, trusted=False)
    assert late.keys.served == staged.keys.next
    assert late.keys.former == (staged.keys.served.authority,)


def test_after_a_long_sleep_an_ended_certificate_is_replaced_at_once() -> None:
    first = step(None, EPOCH)
    later = step(first.keys, EPOCH + 2 * LIFETIME)
    assert later.keys.served.made >= EPOCH + 2 * LIFETIME - timedelta(seconds=1)
    staged = step(first.keys, first.wakes_at)
    later = step(staged.keys, EPOCH + LIFETIME, trusted=False)
    assert later.keys.served == staged.keys.next


def test_another_name_gets_a_certificate_at_once_and_the_former_stays_trusted() -> None:
    first = step(None, EPOCH)
    renamed = step(first.keys, EPOCH, hosts=("other.haulout.svc",))
    assert renamed.keys.served != first.keys.served
    assert first.keys.served.authority in renamed.keys.authorities
    assert step(renamed.keys, EPOCH, hosts=("other.haulout.svc",)).keys == renamed.keys


def data(keys: Keys) -> dict[str, str]:
    return {name: value for name, value in generations.write(keys).items() if value is not None}


def test_a_secret_holds_all_of_it() -> None:
    keys = Keys(made(EPOCH), made(EPOCH + timedelta(days=1)), (made(EPOCH).authority,))
    assert generations.read(data(keys)) == keys
    assert generations.read(data(Keys(keys.served))) == Keys(keys.served)
    assert generations.write(Keys(keys.served))["next.key"] is None


def encoded(value: bytes) -> str:
    return base64.b64encode(value).decode()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"tls.key": "!"}, "not base64"),
        ({"tls.crt": encoded(b"odd")}, "do not fit"),
        ({"tls.key": encoded(made(EPOCH).identity.key)}, "do not fit"),
        ({"ca.crt": encoded(made(EPOCH).authority)}, "signed by none of the authorities"),
        ({"ca.crt": ""}, "PEM"),
        ({"next.crt": encoded(made(EPOCH).identity.certificate)}, "it has no next.key"),
    ],
)
def test_a_secret_that_is_broken_is_told_so(change: dict[str, str], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        generations.read(data(Keys(made(EPOCH))) | change)


def test_a_secret_that_is_empty_is_told_so() -> None:
    with pytest.raises(ValueError, match=r"it has no ca\.crt"):
        generations.read({})
