"""What is asked of the server about pods, and what is known if it does not answer."""

from random import Random

import pytest

from haulout.core.clock import Clock
from haulout.drain.answers import Answers
from haulout.drain.selection import DaemonSetAnswer
from haulout.drain.sorting import Question
from haulout.kube.client import Client
from haulout_sandbox.apiserver import ApiServer

LOGS = Question("daemonset", "shop/logs")


@pytest.mark.parametrize(
    ("status", "problem"),
    [(403, "forbidden"), (500, "an error on the server has prevented the request from succeeding")],
)
async def test_a_refusal_is_told_in_the_words_of_the_server(clock: Clock, status: int, problem: str) -> None:
    transport = ApiServer(clock).transport("drain")
    transport.faults.before(path="daemonsets", answer=status, times=None)
    answers = Answers(Client(transport, clock=clock, random=Random(1)))
    await answers.ask(LOGS)
    assert answers.daemon_sets[LOGS.key] == DaemonSetAnswer(problem)


async def test_a_daemon_set_that_is_not_there_is_missing(clock: Clock) -> None:
    answers = Answers(Client(ApiServer(clock).transport("drain"), clock=clock, random=Random(1)))
    await answers.ask(LOGS)
    assert answers.daemon_sets[LOGS.key] == DaemonSetAnswer('daemonsets.apps "logs" not found', is_missing=True)
