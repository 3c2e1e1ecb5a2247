"""The documentation about AWS matches the code."""

import re
from pathlib import Path

import pytest

from haulout.providers.aws import settings
from haulout_sandbox.clouds.aws import server

ROOT = Path(__file__).parents[4]
REFERENCE = (ROOT / "docs/reference/notices-aws.md").read_text(encoding="utf-8")
MIGRATING = (ROOT / "docs/migrating/aws-node-termination-handler.md").read_text(encoding="utf-8")


def read(module: object) -> str:
    return Path(str(getattr(module, "__file__", ""))).read_text(encoding="utf-8")


def test_reference_documents_each_environment_variable() -> None:
    names = re.findall(r'"([A-Z]+(?:_[A-Z]+)+)"', read(settings))
    ours = {variable for variable in names if variable not in settings.UNSUPPORTED}
    assert ours >= {"QUEUE_URL", "MANAGED_TAG", "HEARTBEAT_INTERVAL"}
    assert [variable for variable in sorted(ours) if f"`{variable}`" not in REFERENCE] == []


def test_documented_iam_policy_permits_each_call() -> None:
    calls = set(re.findall(r'"((?:Describe|Modify|Receive|Delete|Change|Complete|Record)[A-Za-z]+)"', read(server)))
    assert len(calls) == 10
    assert [call for call in sorted(calls) if f":{call}" not in REFERENCE] == []


@pytest.mark.parametrize(
    "name", ["CORDON_ONLY", "DELETE_LOCAL_DATA", "WEBHOOK_URL", "DELETE_SQS_MSG_IF_NODE_NOT_FOUND"]
)
def test_migration_guide_documents_unsupported_variables(name: str) -> None:
    assert name in settings.UNSUPPORTED
    assert f"`{name}`" in MIGRATING
