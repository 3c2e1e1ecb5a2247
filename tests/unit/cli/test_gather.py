"""`haulout gather`, on a cluster full of secrets: none of them is in the archive, and everything else is."""

import io
import json
import tarfile
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from haulout.cli.gathering import packing
from haulout.cli.gathering.collecting import Piece
from haulout.cli.gathering.redaction import legible, redacted
from haulout.kube.objects import RawObject
from haulout.profiles.plugins.registry import registries

NOW = datetime.fromisoformat("2026-11-16T03:00:00+00:00")
SECRET = "hunter2-xyzzy"


@pytest.mark.parametrize(
    "text",
    [
        f"password={SECRET}",
        f"smtp password: {SECRET}",
        f'{{"token": "{SECRET}"}}',
        f"Authorization: Bearer {SECRET}",
        f"authorization: Basic {SECRET}",
        f"curl https://ada:{SECRET}@example.com/x",
        f"--slack-token={SECRET} --other",
        f"AWS_SECRET_ACCESS_KEY={SECRET}",
        f"API_KEY: '{SECRET}'",
        f"api-key = {SECRET};",
        f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n-----END RSA PRIVATE KEY-----",
        f"-----BEGIN PRIVATE KEY-----\n{SECRET}",
        f"posting to https://hooks.slack.com/services/{SECRET}",
        f"xoxb-{SECRET}",
    ],
)
def test_what_is_called_a_secret_or_looks_like_one_is_struck_out_of_text(text: str) -> None:
    assert SECRET not in legible(f"before {text} after")


def test_tokens_that_nobody_calls_so_are_known_by_their_looks() -> None:
    token = "eyJhbGciOiJSUzI1NiIsImtpZCI6IngifQ.eyJzdWIiOiJzeXN0ZW06c2VydmljZWFjY291bnQifQ.c2lnbmF0dXJl"
    assert "c2lnbmF0dXJl" not in legible(f"got {token} from the file")
    assert "AKIAIOSFODNN7EXAMPLE" not in legible("key AKIAIOSFODNN7EXAMPLE used")


@pytest.mark.parametrize(
    "text",
    [
        "node general-01 is drained: 7 pods left in 11s",
        "PodDisruptionBudget bank/ledger allows 0 disruptions",
        "https://10.0.0.1:6443/api/v1/nodes?limit=500",
        "the ServiceAccount haulout/haulout may not list pods",
    ],
)
def test_what_is_no_secret_stays_as_it_is(text: str) -> None:
    assert legible(text) == text


def without_secrets(obj: RawObject) -> str:
    return json.dumps(redacted(obj, registries()))


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


def test_a_configuration_loses_what_its_plugins_call_secret_and_keeps_its_lines() -> None:
    text = f"intervals:\n  requeue: 1m\ninstances:\n  notify:\n  - type: slack\n    config:\n      hook: https://x.test/{SECRET}\n"
    found = redacted({"kind": "ConfigMap", "data": {"maintenance.yaml": text, "db-password": SECRET}}, registries())
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
    found = redacted({"kind": "ConfigMap", "metadata": metadata, "binaryData": {"x": SECRET}}, registries())
    assert found == {"kind": "ConfigMap", "metadata": {"name": "x", "annotations": {"example.com/a": "b"}}, "data": {}}


def test_even_a_secret_would_keep_only_the_names_of_what_it_holds() -> None:
    found = redacted({"kind": "Secret", "data": {"tls.key": SECRET}, "type": "Opaque"}, registries())
    assert found["data"].keys() == {"tls.key"}
    assert SECRET not in json.dumps(found)


def test_an_archive_has_one_folder_and_a_page_that_tells_what_is_missing() -> None:
    pieces = [Piece("nodes.json", b"{}")]
    front = packing.page(pieces, ["pods: may not"], now=NOW)
    packed = packing.packed([front, *pieces], folder="g", now=NOW)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        assert archive.getnames() == ["g/README.txt", "g/nodes.json"]
        page = archive.extractfile("g/README.txt")
        assert page is not None
        assert b"pods: may not" in page.read()


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Exception, match="file"):
        packing.written([Piece("x", b"")], tmp_path / "file")
