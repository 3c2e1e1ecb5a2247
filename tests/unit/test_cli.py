"""The command line as a person meets it: what is printed where, and the exit code."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

import pytest

from haulout import __version__
from haulout.cli import main
from haulout.cli.terminal import PLAIN, PRETTY, Marks
from haulout.kube.transport import Response
from support.review_cluster import ReviewCluster
from support.scripted import answer, refusal


class Outcome(NamedTuple):
    """What a command line came to."""

    code: int | str | None
    out: str
    err: str


Haulout = Callable[..., Outcome]


@pytest.fixture
def haulout(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Haulout:
    """Return a way to run a command line, as a user who has no kubeconfig and is in no pod."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "HTTP_PROXY", "http_proxy", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)

    def run(*args: str) -> Outcome:
        with pytest.raises(SystemExit) as exited:
            main(args)
        said = capsys.readouterr()
        return Outcome(exited.value.code, said.out, said.err)

    return run


class Server(ThreadingHTTPServer):
    """Puts a cluster on a port of this machine."""

    request_queue_size = 64  # room for all questions that are asked at once

    def __init__(self, cluster: ReviewCluster) -> None:
        self.cluster = cluster
        super().__init__(("127.0.0.1", 0), Handler)

    def handle_error(self, *_: object) -> None:
        """Say nothing: a client that gives up on the rest of its questions is right to."""


class Handler(BaseHTTPRequestHandler):
    """Passes requests on to the cluster."""

    server: Server

    def do_GET(self) -> None:
        """Answer."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        given = self.server.cluster.answer(self.path.partition("?")[0], body)
        self.send_response(given.status)
        self.end_headers()
        self.wfile.write(given.body)

    def do_POST(self) -> None:
        """Answer."""
        self.do_GET()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


Serve = Callable[[ReviewCluster], str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Return a way to put a cluster on a port of this machine."""
    servers: list[Server] = []

    def start(cluster: ReviewCluster) -> str:
        server = Server(cluster)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def a_kubeconfig(path: Path, server: str) -> str:
    """Write a kubeconfig whose one context is `prod`, and return its name."""
    config = {
        "current-context": "prod",
        "contexts": [{"name": "prod", "context": {"cluster": "prod", "user": "alice", "namespace": "haulout"}}],
        "clusters": [{"name": "prod", "cluster": {"server": server}}],
        "users": [{"name": "alice", "user": {"token": "secret"}}],
    }
    (path / "kubeconfig").write_text(json.dumps(config))
    return str(path / "kubeconfig")


# Without a cluster


def test_haulout_alone_shows_help_and_is_content(haulout: Haulout) -> None:
    shown = haulout()

    assert shown == haulout("--help")
    assert shown.code == 0
    assert "cluster-info" in shown.out


def test_version_names_haulout_and_python(haulout: Haulout) -> None:
    python = ".".join(str(part) for part in sys.version_info[:3])

    assert haulout("version") == (0, f"haulout {__version__}, Python {python}\n", "")
    assert json.loads(haulout("version", "-o", "json").out) == {"haulout": __version__, "python": python}


def test_a_mistyped_command_is_answered_with_the_one_that_was_meant(haulout: Haulout) -> None:
    code, out, err = haulout("clustr-info")

    assert (code, out) == (2, "")
    assert err.splitlines() == [
        "haulout: No such command 'clustr-info'. Did you mean 'cluster-info'?",
        "Try 'haulout --help'.",
    ]


def test_a_mistyped_option_is_a_usage_error_that_names_the_commands_help(haulout: Haulout) -> None:
    code, _, err = haulout("cluster-info", "--contxt", "prod")

    assert code == 2
    assert err.startswith("haulout: No such option '--contxt'")
    assert err.endswith("Try 'haulout cluster-info --help'.\n")


def test_a_manifest_is_yaml_only(haulout: Haulout) -> None:
    code, _, err = haulout("cluster-info", "--grant", "-o", "json")

    assert (code, err.splitlines()[0]) == (2, "haulout: --grant prints YAML, so --output does not go with it")


def test_help_and_version_start_without_the_heavy_parts() -> None:
    """What talks to clusters takes several times longer to import than these take to answer."""
    script = (
        "import sys; from haulout.cli import main\n"
        "try: main(['version'])\n"
        "finally: print(sorted({'aiohttp', 'asyncio', 'msgspec', 'uvloop', 'yaml'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[1] == "[]"


def test_python_can_run_it_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "haulout", "--version"], capture_output=True, text=True, check=True)

    assert done.stdout == f"haulout {__version__}\n"


# The way to the cluster


def test_no_kubeconfig_at_all_is_a_usage_error_that_says_what_to_do(haulout: Haulout) -> None:
    code, out, err = haulout("cluster-info")

    assert (code, out) == (2, "")
    assert "give --kubeconfig FILE or set KUBECONFIG" in err
    assert err.count("\n") == 1


def test_an_unknown_context_is_a_usage_error_that_names_the_others(haulout: Haulout, tmp_path: Path) -> None:
    code, _, err = haulout("cluster-info", "--kubeconfig", a_kubeconfig(tmp_path, "https://x"), "--context", "prd")

    assert code == 2
    assert "there is no context 'prd', did you mean 'prod'?" in err


def test_a_cluster_that_is_not_there_is_one_line(haulout: Haulout, tmp_path: Path) -> None:
    with socket.socket() as taken:  # bound and not listening: nobody else gets the port, and it refuses
        taken.bind(("127.0.0.1", 0))
        server = f"http://127.0.0.1:{taken.getsockname()[1]}"
        code, out, err = haulout("cluster-info", "--kubeconfig", a_kubeconfig(tmp_path, server))

    assert (code, out) == (1, "")
    assert err.startswith(f"haulout: get the server's version: cannot connect to {server}: connection refused")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            refusal(401, "Unauthorized", "token expired"),
            "does not accept the credentials of 'alice' (context 'prod' in",
        ),
        (refusal(403, "Forbidden", 'User "bob" cannot'), 'User "bob" cannot; all who are logged in normally may'),
        (answer(b"<html><title>Sign in</title></html>"), "got an HTML page titled 'Sign in'; is a proxy or a login"),
        (answer(b"gone", status=404), "does not look like a Kubernetes API server"),
    ],
)
def test_a_cluster_that_says_no_is_one_line(
    haulout: Haulout, serve: Serve, tmp_path: Path, given: Response, said: str
) -> None:
    server = serve(ReviewCluster(broken={"*": given}))
    code, out, err = haulout("cluster-info", "--kubeconfig", a_kubeconfig(tmp_path, server))

    assert (code, out) == (1, "")
    assert said in err
    assert err.count("\n") == 1


def test_credentials_never_show_in_an_error(haulout: Haulout, serve: Serve, tmp_path: Path) -> None:
    server = serve(ReviewCluster(broken={"*": refusal(401, "Unauthorized")}))
    _, _, err = haulout("cluster-info", "--kubeconfig", a_kubeconfig(tmp_path, server))

    assert "secret" not in err


def test_verbose_shows_where_an_error_came_from() -> None:
    command = [sys.executable, "-m", "haulout", "cluster-info", "--kubeconfig", "/nonexistent", "-v"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert "Traceback" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("haulout: /nonexistent: cannot read the kubeconfig")


# cluster-info


def test_a_cluster_where_nothing_is_missing_is_exit_code_zero(haulout: Haulout, serve: Serve, tmp_path: Path) -> None:
    code, out, err = haulout("cluster-info", "--kubeconfig", a_kubeconfig(tmp_path, serve(ReviewCluster())))

    assert (code, err) == (0, "")
    assert "You are    alice" in out
    assert "Namespace  haulout" in out
    assert "--grant" not in out


def test_something_missing_is_exit_code_one_and_a_command_to_paste(
    haulout: Haulout, serve: Serve, tmp_path: Path
) -> None:
    file = a_kubeconfig(tmp_path, serve(ReviewCluster(refused={"list nodes"})))
    code, out, _ = haulout("cluster-info", "--kubeconfig", file, "--context", "prod", "-n", "kube-system")

    assert code == 1
    assert out.splitlines()[-1] == (
        f"  haulout cluster-info --kubeconfig {file} --context prod --namespace kube-system --grant"
        " | kubectl --context ADMIN apply -f -"
    )


def test_grant_prints_the_manifest_and_nothing_else(haulout: Haulout, serve: Serve, tmp_path: Path) -> None:
    file = a_kubeconfig(tmp_path, serve(ReviewCluster(refused={"list nodes"})))
    code, out, err = haulout("cluster-info", "--kubeconfig", file, "--grant")

    assert (code, err) == (0, "")
    assert [line for line in out.splitlines() if line.startswith("kind")] == [
        "kind: ClusterRole",
        "kind: ClusterRoleBinding",
    ]


def test_json_goes_with_the_same_exit_code(haulout: Haulout, serve: Serve, tmp_path: Path) -> None:
    file = a_kubeconfig(tmp_path, serve(ReviewCluster(refused={"list nodes"})))
    code, out, _ = haulout("cluster-info", "--kubeconfig", file, "-o", "json")

    assert code == 1
    assert json.loads(out)["ready"] is False


def test_an_interrupt_ends_quietly(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        file = a_kubeconfig(tmp_path, f"http://127.0.0.1:{silent.getsockname()[1]}")
        command = [sys.executable, "-m", "haulout", "cluster-info", "--kubeconfig", file]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            connection, _ = silent.accept()
            with connection:
                connection.recv(1)
                process.send_signal(signal.SIGINT)
                _, err = process.communicate()

    assert (process.returncode, err.strip()) == (130, "")


def test_a_reader_who_left_is_no_error(serve: Serve, tmp_path: Path) -> None:
    file = a_kubeconfig(tmp_path, serve(ReviewCluster()))
    command = [sys.executable, "-m", "haulout", "cluster-info", "--kubeconfig", file]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""


# What fits the terminal


def in_a_terminal(kubeconfig: str, **environment: str) -> str:
    """Return what the command shows when its standard output is a terminal."""
    terminal, output = os.openpty()
    command = [sys.executable, "-m", "haulout", "cluster-info", "--kubeconfig", kubeconfig]
    subprocess.run(command, stdout=output, check=True, env={**os.environ, **environment})
    os.close(output)
    with os.fdopen(terminal, "rb") as screen:
        return screen.read1(100_000).decode()


def test_a_terminal_gets_colours_unless_the_user_declines(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    file = a_kubeconfig(tmp_path, serve(ReviewCluster()))

    assert "\x1b[" in in_a_terminal(file)
    assert "\x1b[" not in in_a_terminal(file, NO_COLOR="1")


def printed(cluster_address: str, folder: Path, encoding: str) -> str:
    """Return what the command prints where only `encoding` is understood."""
    command = [sys.executable, "-m", "haulout", "cluster-info", "--kubeconfig", a_kubeconfig(folder, cluster_address)]
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    return subprocess.run(command, capture_output=True, check=True, env=environment).stdout.decode(encoding)


@pytest.mark.parametrize(("encoding", "expected"), [("utf-8", PRETTY), ("ascii", PLAIN), ("latin-1", PLAIN)])
def test_signs_are_those_that_the_terminal_can_show(
    serve: Serve, tmp_path: Path, encoding: str, expected: Marks
) -> None:
    assert f"  {expected.yes} see nodes" in printed(serve(ReviewCluster()), tmp_path, encoding)


def test_a_name_that_the_terminal_cannot_show_is_spelled_out(serve: Serve, tmp_path: Path) -> None:
    assert "You are    \\u0142ukasz" in printed(serve(ReviewCluster(username="łukasz")), tmp_path, "latin-1")
