"""Two replicas with a cloud event source, and leaders killed at random instants: nothing is lost or repeated."""

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from haulout.api.objects import Node
from haulout.app.manifests.operator_manifests import definitions
from haulout.app.operator import OperatorSettings, run_operator
from haulout.controllers.notices.component import NoticesComponent
from haulout.controllers.profiles.component import ProfilesComponent
from haulout.controllers.profiles.config.profiles_file import ProfilesFile
from haulout.core.clock import Clock
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.providers.aws.event_source import AwsEventSource
from haulout.providers.aws.settings import AwsSettings
from haulout.providers.component import EventSourceComponent
from haulout.providers.event_source import EventSource
from haulout_sandbox.clouds.aws import AwsCloud
from support.clusters.drain_cluster import DrainCluster
from support.clusters.process import Process
from support.fakes.external_client import FakeExternalClient, FakeReply, SentRequest
from support.faults.leader_kills import CONFIGURATION, QUEUE, KillRounds, observed_reboots
from support.operators.replicas import NAMESPACE, a_replica_cluster, all_leases_held_by, leader, lease_holders

ROUNDS = 5


class InProcess:
    """Replicas on the sandbox."""

    def __init__(self, town: DrainCluster, cloud: AwsCloud, file: Path) -> None:
        self.town = town
        self.cloud = cloud
        self.file = file
        self.messages: list[str] = []
        self.outside = FakeExternalClient(reply_to=self.take_message)
        self.running: dict[str, Process] = {}
        self.started = 0
        for _ in range(2):
            self.start()

    def take_message(self, request: SentRequest) -> FakeReply:
        """Take a message as Slack does."""
        self.messages.append(request.json["text"])
        return 200, b"ok"

    def start(self) -> None:
        """Start another one."""
        self.started += 1
        name = f"replica-{self.started}"
        settings = OperatorSettings(namespace=NAMESPACE, identity=name)
        environ = {"HOOK": "https://hooks.example.com/1"}
        profiles = ProfilesComponent(ProfilesFile(self.file, environ=environ, clock=self.town.clock), self.outside)

        async def program(client: Client) -> None:
            notices = NoticesComponent([EventSourceComponent("aws", self.make_source)])
            await run_operator(client, settings, profiles=profiles, notices=notices)

        process = self.running[name] = Process(self.town.cluster, name, program)
        process.start()

    def make_source(self, client: Client, nodes: Informer[Node]) -> EventSource:
        """Return the event source of the cloud."""
        cloud, settings = self.cloud, AwsSettings(queue_url=QUEUE)
        return AwsEventSource(ec2=cloud, auto_scaling=cloud, sqs=cloud, client=client, nodes=nodes, settings=settings)

    def recent_log_lines(self) -> Sequence[str]:
        """Return nothing: pytest shows the log."""
        return ()

    def kill_leader(self) -> None:
        """Kill the leader and start another replica."""
        self.running.pop(leader(self.town)).kill()
        self.start()

    async def wait_for_standby(self) -> None:
        """Return when one that lives has both leases."""
        await self.town.wait_until(lambda: leader(self.town) in self.running)
        await self.town.wait_until(lambda: lease_holders(self.town) == all_leases_held_by(leader(self.town)))


@pytest.mark.parametrize("seed", range(10))
async def test_leader_kills_at_random_instants_lose_and_repeat_no_action(
    seed: int, clock: Clock, tmp_path: Path
) -> None:
    file = tmp_path / "maintenance.yaml"
    file.write_text(CONFIGURATION)
    cloud = AwsCloud(clock)
    async with a_replica_cluster(clock) as town:
        town.put(*definitions())
        admin = town.cluster.client("admin")
        async with observed_reboots(admin) as observer:
            rounds = KillRounds(admin, cloud, InProcess(town, cloud, file), observer, random=Random(seed))
            await rounds.prepare()
            for _ in range(ROUNDS):
                await rounds.run_round()
            rounds.expect_nothing_lost_or_repeated()
