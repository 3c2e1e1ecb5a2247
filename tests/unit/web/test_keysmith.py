"""Certificates that another process makes and reads are those that this one would have made and read."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from haulout.web import generations
from haulout.web.generations import OVERLAP
from haulout.web.keysmith import Aside, Here, Keysmith

NOW = datetime(2026, 1, 5, tzinfo=UTC)
HOSTS = ("webhook.haulout.svc", "127.0.0.1")

pytestmark = pytest.mark.real_time


async def test_another_process_makes_keys_and_reads_them() -> None:
    smith = Aside()
    made = await smith.step(None, hosts=HOSTS, now=NOW, trusted=False, name="test")
    data = {name: value for name, value in generations.write(made.keys).items() if value is not None}

    assert await smith.read(data) == made.keys == await Here().read(data)
    assert made.keys.served.is_for(HOSTS)
    assert made.keys.served.made == NOW
    due = await smith.step(made.keys, hosts=HOSTS, now=made.wakes_at, trusted=True, name="test")
    assert due.keys.served == made.keys.served
    assert due.keys.next is not None
    assert due.wakes_at == made.wakes_at + OVERLAP
    with pytest.raises(ValueError, match=r"it has no tls\.key"):
        await smith.read({name: value for name, value in data.items() if name != "tls.key"})


@pytest.mark.parametrize("executable", ["/nowhere/python", "/bin/false"])
async def test_where_no_other_process_can_do_it_this_one_does(executable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    smith: Keysmith = Aside()
    made = await smith.step(None, hosts=HOSTS, now=NOW, trusted=False, name="test")
    data = {name: value for name, value in generations.write(made.keys).items() if value is not None}
    assert await smith.read(data) == made.keys
    assert made.wakes_at > NOW + timedelta(days=200)


def test_an_operator_does_not_load_what_makes_them() -> None:
    loads = "import sys; from haulout.web import webhook; from haulout.cli import operate; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", loads], capture_output=True, check=True, text=True).stdout.split()
    assert "haulout.web.webhook" in found
    assert "cryptography" not in found
