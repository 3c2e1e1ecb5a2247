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


def redacted_text(obj: RawObject) -> str:
    return json.dumps(redact_object(obj, registries()))


def test_secret_variables_are_redacted_and_secret_references_are_kept() -> None:
    reference = {"secretKeyRef": {"name": "slack", "key": "token"}}
    env = [
        {"name": "SLACK_TOKEN", "value": SECRET},
        {"name": "NODE_NAME", "value": "n1"},
        {"name": "PASSWORD", "valueFrom": reference},
    ]
    found = redacted_text({"kind": "Deployment", "spec": {"containers": [{"env": env, "args": [f"--token={SECRET}"]}]}})
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
def test_secrets_are_redacted_in_all_fields(obj: RawObject) -> None:
    assert SECRET not in redacted_text({"kind": "Pod", "spec": obj})


def test_numeric_password_is_redacted() -> None:
    assert "12345678" not in redacted_text({"kind": "Widget", "spec": {"password": 12345678}})


def test_secret_references_are_kept() -> None:
    spec = {
        "imagePullSecrets": [{"name": "registry"}],
        "volumes": [{"secret": {"secretName": "certificates"}}],
        "automountServiceAccountToken": True,
        "args": ["--token", "$(TOKEN)", "--password-file", "/run/password"],
    }
    assert redacted_text({"kind": "Pod", "spec": spec}) == json.dumps({"kind": "Pod", "spec": spec})


def test_configuration_redacts_secret_plugin_options_and_keeps_its_lines() -> None:
    text = f"intervals:\n  requeue: 1m\ninstances:\n  notify:\n  - type: slack\n    config:\n      hook: https://x.test/{SECRET}\n"
    found = redact_object(
        {"kind": "ConfigMap", "data": {"maintenance.yaml": text, "db-password": SECRET}}, registries()
    )
    assert SECRET not in json.dumps(found)
    assert "requeue: 1m" in found["data"]["maintenance.yaml"]
    assert len(found["data"]["maintenance.yaml"].splitlines()) == len(text.splitlines())


def test_invalid_yaml_configuration_is_redacted_conservatively() -> None:
    text = f"instances: [\n  token: {SECRET}\n  url: https://ada:{SECRET}@x.test/{SECRET}\n"
    assert SECRET not in redacted_text({"kind": "ConfigMap", "data": {"maintenance.yaml": text}})


def test_last_applied_configuration_and_binary_data_are_removed() -> None:
    metadata: dict[str, Any] = {
        "name": "x",
        "managedFields": [{"manager": "kubectl"}],
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": SECRET, "example.com/a": "b"},
    }
    found = redact_object({"kind": "ConfigMap", "metadata": metadata, "binaryData": {"x": SECRET}}, registries())
    assert found == {"kind": "ConfigMap", "metadata": {"name": "x", "annotations": {"example.com/a": "b"}}, "data": {}}


def test_secret_objects_keep_only_their_keys() -> None:
    found = redact_object({"kind": "Secret", "data": {"tls.key": SECRET}, "type": "Opaque"}, registries())
    assert found["data"].keys() == {"tls.key"}
    assert SECRET not in json.dumps(found)


def test_archive_has_one_folder_and_a_readme_that_lists_missing_parts() -> None:
    pieces = [ArchiveFile("nodes.json", b"{}")]
    front = readme(pieces, ["pods: may not"], now=NOW)
    packed = build_archive([front, *pieces], folder="g", now=NOW)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        assert archive.getnames() == ["g/README.txt", "g/nodes.json"]
        page = archive.extractfile("g/README.txt")
        assert page is not None
        assert b"pods: may not" in page.read()


def test_folder_that_cannot_be_created_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Exception, match="file"):
        write_files([ArchiveFile("x", b"")], tmp_path / "file")


async def test_gather_sends_its_token_to_the_dashboard_but_not_with_log_requests(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API server does not forward `Authorization` to pods, but forwards cookies."""
    monkeypatch.setenv("HAULOUT_TOKEN", "abc")
    transport = ScriptedTransport([json_response({})] * 7)
    session = SimpleNamespace(client=Client(transport, clock=clock, random=Random(0)))
    collector = Collector(session, GatherOptions(), registries())  # type: ignore[arg-type] # nothing else of it is used
    pod = {"metadata": {"name": "haulout-1", "namespace": "haulout"}}
    found = [it.path async for it in collector._pod_files(pod)]
    assert len(found) == 7
    headers = {it.path.partition("/haulout-1")[2]: it.headers for it in transport.requests}
    assert headers["%3A8080/proxy/api/v2/summary"] == (("Cookie", "haulout-token=abc"),)
    assert headers["/log"] == ()
