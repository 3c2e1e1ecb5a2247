"""The pages about AWS say what the code does."""

import re
from pathlib import Path

import pytest

from haulout.notices.sources.aws import settings
from haulout_sandbox.clouds.aws import front

ROOT = Path(__file__).parents[4]
REFERENCE = (ROOT / "docs/reference/notices-aws.md").read_text(encoding="utf-8")
MIGRATING = (ROOT / "docs/migrating/aws-node-termination-handler.md").read_text(encoding="utf-8")


def read(module: object) -> str:
    return Path(str(getattr(module, "__file__", ""))).read_text(encoding="utf-8")


def test_each_variable_that_is_read_is_told_of() -> None:
    names = re.findall(r'"([A-Z]+(?:_[A-Z]+)+)"', read(settings))
    ours = {it for it in names if it not in settings.FOREIGN}
    assert ours >= {"QUEUE_URL", "MANAGED_TAG", "HEARTBEAT_INTERVAL"}
    assert [it for it in sorted(ours) if f"`{it}`" not in REFERENCE] == []


def test_each_call_is_permitted_by_the_policy() -> None:
    calls = set(re.findall(r'"((?:Describe|Modify|Receive|Delete|Change|Complete|Record)[A-Za-z]+)"', read(front)))
    assert len(calls) == 10
    assert [it for it in sorted(calls) if f":{it}" not in REFERENCE] == []


@pytest.mark.parametrize(
    "name", ["CORDON_ONLY", "DELETE_LOCAL_DATA", "WEBHOOK_URL", "DELETE_SQS_MSG_IF_NODE_NOT_FOUND"]
)
def test_what_means_nothing_here_is_told_where_it_is_found(name: str) -> None:
    assert name in settings.FOREIGN
    assert f"`{name}`" in MIGRATING
