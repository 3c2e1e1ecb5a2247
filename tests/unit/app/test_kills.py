"""Two replicas that listen to a cloud, and leaders that are killed at random instants: nothing lost, nothing twice."""

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from haulout.app.configured import Configured
from haulout.app.manifests import definitions
from haulout.app.notices import Notices
from haulout.app.operator import OperatorSettings, run_operator
from haulout.app.profiles import Profiles
from haulout.core.clock import Clock
from haulout.kube.cache import Cache
from haulout.kube.client import Client
from haulout.kube.objects import Node
from haulout.notices.sources import Source
from haulout.notices.sources.aws.settings import Settings
from haulout.notices.sources.aws.source import AwsSource
from haulout_sandbox.clouds.aws import AwsCloud
from support.draining import Town
from support.kills import CONFIGURATION, QUEUE, Story, judged
from support.outside import Asked, FakeOutside, Given
from support.processes import Process
from support.replicas import HOME, a_site, both, holders, leader

ROUNDS = 5


class InProcess:
    """Replicas on the sandbox."""

    def __init__(self, town: Town, cloud: AwsCloud, file: Path) -> None:
        self.town = town
        self.cloud = cloud
        self.file = file
        self.messages: list[str] = []
        self.outside = FakeOutside(behave=self.take_message)
        self.running: dict[str, Process] = {}
        self.started = 0
        for _ in range(2):
            self.start()

    def take_message(self, asked: Asked) -> Given:
        """Take a message as Slack does."""
        self.messages.append(asked.json["text"])
        return 200, b"ok"

    def start(self) -> None:
        """Start another one."""
        self.started += 1
        name = f"replica-{self.started}"
        settings = OperatorSettings(namespace=HOME, identity=name)
        environ = {"HOOK": "https://hooks.example.com/1"}
        profiles = Profiles(Configured(self.file, environ=environ, clock=self.town.clock), self.outside)

        async def program(client: Client) -> None:
            await run_operator(client, settings, profiles=profiles, notices=Notices(self.sources))

        process = self.running[name] = Process(self.town.cluster, name, program)
        process.start()

    def sources(self, client: Client, nodes: Cache[Node]) -> Sequence[Source]:
        """Listen to the cloud."""
        cloud, settings = self.cloud, Settings(queue_url=QUEUE)
        return [AwsSource(ec2=cloud, groups=cloud, sqs=cloud, client=client, nodes=nodes, settings=settings)]

    def last_logged(self) -> Sequence[str]:
        """Return nothing: pytest shows it."""
        return ()

    def kill_leader(self) -> None:
        """Kill the leader and start another replica."""
        self.running.pop(leader(self.town)).kill()
        self.start()

    async def wait_for_standby(self) -> None:
        """Return when one that lives has both leases."""
        await self.town.until(lambda: leader(self.town) in self.running)
        await self.town.until(lambda: holders(self.town) == both(leader(self.town)))


@pytest.mark.parametrize("seed", range(10))
async def test_kills_at_random_instants_lose_nothing_and_repeat_nothing(
    seed: int, clock: Clock, tmp_path: Path
) -> None:
    file = tmp_path / "maintenance.yaml"
    file.write_text(CONFIGURATION)
    cloud = AwsCloud(clock)
    async with a_site(clock) as town:
        town.put(*definitions())
        admin = town.cluster.client("admin")
        async with judged(admin) as judge:
            story = Story(admin, cloud, InProcess(town, cloud, file), judge, random=Random(seed))
            await story.prepare()
            for _ in range(ROUNDS):
                await story.round()
            story.expect_nothing_lost_or_told_twice()
