"""`haulout gather`, on a cluster full of secrets: none of them is in the archive, and everything else is."""

import io
import json
import tarfile
from datetime import datetime
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from haulout.api.objects import RawObject
from haulout.cli.gather.collector import (
    ArchiveFile,
    Collector,
    GatherOptions,
    build_archive,
    readme,
    redact_object,
    write_files,
)
from haulout.controllers.profiles.plugins.registry import registries
from haulout.core.clock import Clock
from haulout.kube.client import Client
from support.fakes.scripted_transport import ScriptedTransport, json_response

NOW = datetime.fromisoformat("2026-11-16T03:00:00+00:00")
SECRET = "hunter2-xyzzy"


def without_secrets(obj: RawObject) -> str:
    return json.dumps(redact_object(obj, registries()))


def test_a_variable_is_known_by_its_name_and_one_that_refers_to_a_secret_stays() -> None:
    reference = {"secretKeyRef": {"name": "slack", "key": "token"}}
    env = [
        {"name": "SLACK_TOKEN", "value": SECRET},
        {"name": "NODE_NAME", "value": "n1"},
        {"name": "PASSWORD", "valueFrom": reference},
    ]
    found = without_secrets(
        {"kind": "Deployment", "spec": {"containers": [{"env": env, "args": [f"--token={SECRET}"]}]}}
    )
    assert SECRET not in found
    assert '"value": "n1"' in found
    assert json.dumps(reference) in found


@pytest.mark.parametrize(
    "obj",
    [
        {"args": ["--password", SECRET]},
        {"command": ["curl", "-u", f"ada:{SECRET}"]},
        {"command": ["mysqladmin", "ping", f"-p{SECRET}"]},
        {"env": [{"name": "SMTP_PASS", "value": SECRET}]},
        {"httpHeaders": [{"name": "Authorization", "value": f"Basic {SECRET}"}]},
        {"client-key-data": SECRET},
        {"db.pass": SECRET},
        {"tokens": [SECRET]},
        {"annotations": {"example.com/login": f"user=ada pass={SECRET}"}},
    ],
)
def test_a_secret_is_hidden_wherever_an_object_holds_it(obj: RawObject) -> None:
    assert SECRET not in without_secrets({"kind": "Pod", "spec": obj})


def test_a_password_that_is_a_number_is_hidden() -> None:
    assert "12345678" not in without_secrets({"kind": "Widget", "spec": {"password": 12345678}})


def test_what_refers_to_a_secret_stays() -> None:
    spec = {
        "imagePullSecrets": [{"name": "registry"}],
        "volumes": [{"secret": {"secretName": "certificates"}}],
        "automountServiceAccountToken": True,
        "args": ["--token", "$(TOKEN)", "--password-file", "/run/password"],
    }
    assert without_secrets({"kind": "Pod", "spec": spec}) == json.dumps({"kind": "Pod", "spec": spec})


def test_a_configuration_loses_what_its_plugins_call_secret_and_keeps_its_lines() -> None:
    text = f"intervals:\n  requeue: 1m\ninstances:\n  notify:\n  - type: slack\n    config:\n      hook: https://x.test/{SECRET}\n"
    found = redact_object(
        {"kind": "ConfigMap", "data": {"maintenance.yaml": text, "db-password": SECRET}}, registries()
    )
    assert SECRET not in json.dumps(found)
    assert "requeue: 1m" in found["data"]["maintenance.yaml"]
    assert len(found["data"]["maintenance.yaml"].splitlines()) == len(text.splitlines())


def test_a_configuration_that_is_no_yaml_loses_more_than_it_must() -> None:
    text = f"instances: [\n  token: {SECRET}\n  url: https://ada:{SECRET}@x.test/{SECRET}\n"
    assert SECRET not in without_secrets({"kind": "ConfigMap", "data": {"maintenance.yaml": text}})


def test_the_last_applied_configuration_and_binary_data_are_left_out() -> None:
    metadata: dict[str, Any] = {
        "name": "x",
        "managedFields": [{"manager": "kubectl"}],
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": SECRET, "example.com/a": "b"},
    }
    found = redact_object({"kind": "ConfigMap", "metadata": metadata, "binaryData": {"x": SECRET}}, registries())
    assert found == {"kind": "ConfigMap", "metadata": {"name": "x", "annotations": {"example.com/a": "b"}}, "data": {}}


def test_even_a_secret_would_keep_only_the_names_of_what_it_holds() -> None:
    found = redact_object({"kind": "Secret", "data": {"tls.key": SECRET}, "type": "Opaque"}, registries())
    assert found["data"].keys() == {"tls.key"}
    assert SECRET not in json.dumps(found)


def test_an_archive_has_one_folder_and_a_page_that_tells_what_is_missing() -> None:
    pieces = [ArchiveFile("nodes.json", b"{}")]
    front = readme(pieces, ["pods: may not"], now=NOW)
    packed = build_archive([front, *pieces], folder="g", now=NOW)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        assert archive.getnames() == ["g/README.txt", "g/nodes.json"]
        page = archive.extractfile("g/README.txt")
        assert page is not None
        assert b"pods: may not" in page.read()


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Exception, match="file"):
        write_files([ArchiveFile("x", b"")], tmp_path / "file")


async def test_operators_are_asked_with_the_token_of_whoever_gathers_and_their_logs_without(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API server keeps `Authorization` to itself, and passes cookies on."""
    monkeypatch.setenv("HAULOUT_TOKEN", "abc")
    transport = ScriptedTransport([json_response({})] * 7)
    session = SimpleNamespace(client=Client(transport, clock=clock, random=Random(0)))
    collector = Collector(session, GatherOptions(), registries())  # type: ignore[arg-type] # nothing else of it is used
    pod = {"metadata": {"name": "haulout-1", "namespace": "haulout"}}
    found = [it.path async for it in collector._pod_files(pod)]
    assert len(found) == 7
    shown = {it.path.partition("/haulout-1")[2]: it.headers for it in transport.requests}
    assert shown["%3A8080/proxy/api/v2/summary"] == (("Cookie", "haulout-token=abc"),)
    assert shown["/log"] == ()
