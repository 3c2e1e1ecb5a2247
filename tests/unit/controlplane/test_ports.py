"""Tests that start servers at the same time use different ports."""

import pytest

from controlplane.ports import free_ports


def test_two_workers_never_choose_the_same_port(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for worker in ("gw0", "gw1", "gw7"):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", worker)
        found.append(set(free_ports(200)))
    assert all(len(item) == 200 for item in found)
    assert not found[0] & found[1]
    assert not found[0] & found[2]


def test_no_port_is_given_twice_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    assert not set(free_ports(500)) & set(free_ports(500))
