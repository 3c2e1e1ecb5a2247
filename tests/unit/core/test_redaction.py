"""Redaction of secrets in texts, in all syntaxes in which programs and people write them."""

import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haulout.core.redaction import is_secret_name, redact, redact_arguments, redact_known_patterns, redact_values

S = "hunter2-xyzzy"
HEX = "0123456789abcdef" * 4
ALNUM = "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0dF3hJ6lN"

# Examples from logs, manifests, command lines and files of real programs. `S` must be redacted.
ASSIGNED = (
    f"password={S}",
    f"PASSWORD={S}",
    f"pass={S}",
    f"db.pass={S}",
    f"DB_PASS={S}",
    f"- name: SMTP_PASS\n  value: {S}",
    f"    name: DB_PASSWORD\n    value: '{S}'",
    f'{{"name":"DB_PASS","value":"{S}"}}',
    f'{{\\"name\\": \\"API_TOKEN\\", \\"value\\": \\"{S}\\"}}',
    f"SMTP_PASS={S}",
    f"SMTP_PASS: {S}",
    f"export DB_PASS={S}",
    f"export DB_PASS='{S}'",
    f"MYSQL_PWD={S}",
    f"PGPASSWORD={S} psql -h db",
    f"REDISCLI_AUTH_PASS={S}",
    f"dbpassword={S}",
    f"userpass: {S}",
    f"smtp password: {S}",
    f"passphrase = {S}",
    f"spring.datasource.password={S}",
    f"quarkus.datasource.password: {S}",
    f"javax.net.ssl.keyStorePassword={S}",
    f"-Djavax.net.ssl.trustStorePassword={S}",
    f"API_KEY: '{S}'",
    f"api-key = {S};",
    f"apikey={S}",
    f"X-Api-Key: {S}",
    f"X-Auth-Token: {S}",
    f"X-Vault-Token: {S}",
    f"PRIVATE-TOKEN: {S}",
    f"AWS_SECRET_ACCESS_KEY={S}",
    f"aws_secret_access_key = {S}",
    f"aws_session_token = {S}",
    f"AZURE_CLIENT_SECRET={S}",
    f"AccountName=x;AccountKey={S};EndpointSuffix=core.windows.net",
    f"Endpoint=sb://x/;SharedAccessKeyName=n;SharedAccessKey={S}",
    f"Server=db;User Id=sa;Password={S};Encrypt=yes",
    f"Server=db;Uid=sa;Pwd={S};",
    f"ARM_ACCESS_KEY={S}",
    f"OS_PASSWORD={S}",
    f"GITHUB_TOKEN={S}",
    f"NPM_TOKEN={S}",
    f"//registry.npmjs.org/:_authToken={S}",
    f"_password={S}",
    f"HCLOUD_TOKEN={S}",
    f"routing_key: {S}",
    f"signing_key={S}",
    f"encryption-key={S}",
    f"client-key-data: {S}",
    f"    client-key-data: {S}\n    username: x",
    f"id-token: {S}",
    f"refresh-token: {S}",
    f"clientSecret: {S}",
    f"client_secret={S}&grant_type=client_credentials",
    f"https://example.com/cb?access_token={S}&state=1",
    f"https://bucket.example.com/x?X-Amz-Signature={S}&X-Amz-Date=1",
    f"https://bucket.example.com/x?X-Amz-Security-Token={S}",
    f"jdbc:postgresql://db/x?user=ada&password={S}",
    f"host=db user=ada password={S} sslmode=require",
    f"password: correct horse {S} staple",
    f"  - password: {S} with a blank",
    f'password = "{S} with a blank"',
    f'{{"token": "{S}"}}',
    f'{{"token":"{S}","x":1}}',
    f'{{\\"password\\":\\"{S}\\"}}',
    f"{{'password': '{S}'}}",
    f'{{"password": "a\\"{S}"}}',
    f'"tokens": ["{S}", "{S}"]',
    f"'passwd' => '{S}'",
    f":password=>{S}",
    f"password := {S}",
    f"Settings(password='{S}', user='ada')",
    f"map[password:{S} user:ada]",
    f"{{Password:{S} User:ada}}",
    f"&{{Token:{S}}}",
    f"level=info token={S} msg=ok",
    f"<password>{S}</password>",
    f'<secret kind="x">{S}</secret>',
    f"${{TOKEN:{S}}}",
    f"${{TOKEN:-{S}}}",
    f"Authorization: Bearer {S}",
    f"authorization: Basic {S}",
    f"Authorization: Token {S}",
    f"Authorization: GenieKey {S}",
    f"Authorization: AWS4-HMAC-SHA256 Credential=x, SignedHeaders=host, Signature={S}",
    f"Proxy-Authorization: Basic {S}",
    f'"Authorization":["Bearer {S}"]',
    f"map[Authorization:[Bearer {S}] Accept:[*/*]]",
    f"Cookie: session={S}; theme=dark",
    f"Set-Cookie: id={S}; HttpOnly",
    f"curl -H 'Authorization: Basic {S}' https://example.com",
    f'curl -H "Cookie: a={S}; b={S}" https://example.com',
    f"requirepass {S}",
    f"masterauth {S}",
    f"machine example.com login ada password {S}",
    f"CREATE USER ada IDENTIFIED BY '{S}'",
    f"ENV DB_PASSWORD {S}",
    f"echo 'root:{S}' | chpasswd",
)
COMMANDS = (
    f'["--password","{S}"]',
    f'["--password", "{S}", "--verbose"]',
    f"['--token', '{S}']",
    f"- --password\n- {S}",
    f"--password {S}",
    f"--password={S}",
    f'--password "{S} x"',
    f"--slack-token={S} --other",
    f"--from-literal=password={S}",
    f"-storepass {S}",
    f"-keypass {S}",
    f"curl -u ada:{S} https://example.com",
    f"curl -u 'ada:{S}' https://example.com",
    f"curl --user ada:{S} https://example.com",
    f"curl --user=ada:{S} https://example.com",
    f"curl --proxy-user ada:{S} https://example.com",
    f'["curl","-u","ada:{S}"]',
    f"smbclient //host/share -U ada%{S}",
    f"sshpass -p {S} ssh host",
    f"mysql -uroot -p{S} shop",
    f"mysqladmin ping -uroot -p{S}",
    f"redis-cli -h cache -a {S} ping",
    f"ldapsearch -x -D cn=admin -w {S} -b dc=x",
    f"docker login -u ada -p {S} registry.example.com",
    f"openssl rsa -in key -passin pass:{S}",
    f"helm install x --set auth.password={S}",
)
SHAPED = (
    f"-----BEGIN RSA PRIVATE KEY-----\n{S}\n-----END RSA PRIVATE KEY-----",
    f"-----BEGIN PRIVATE KEY-----\n{S}",
    f"-----BEGIN OPENSSH PRIVATE KEY-----\\n{S}\\n-----END OPENSSH PRIVATE KEY-----",
    f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n{S}\n-----END PGP PRIVATE KEY BLOCK-----",
    f"https://ada:{S}@example.com/x",
    f"https://{S}@example.com/x",
    f"redis://:p@{S}@cache:6379/0",
    f"amqp://ada:{S}@mq:5672",
    f"mongodb+srv://ada:{S}@cluster.example.com/x",
    f"root:{S}@tcp(db:3306)/shop",
    f"posting to https://hooks.slack.com/services/{S}",
    f"https://discord.com/api/webhooks/1/{S}",
    f"https://x.webhook.office.com/webhookb2/{S}",
    f"https://api.telegram.org/bot{S}/sendMessage",
    f"https://x.blob.core.windows.net/y?sv=1&sig={S}",
    f"https://maps.example.com/x?key={S}",
    f"xoxb-{S}",
)
TOKENS = (
    f"ghp_{ALNUM}",
    f"gho_{ALNUM}",
    f"ghs_{ALNUM}",
    f"github_pat_{ALNUM}_{ALNUM}",
    f"glpat-{ALNUM}",
    f"glrt-{ALNUM}",
    f"xoxp-{ALNUM}",
    f"xapp-1-{ALNUM}",
    "AKIAIOSFODNN7EXAMPLE",
    "ASIAIOSFODNN7EXAMPLE",
    f"AIza{ALNUM}",
    f"ya29.{ALNUM}",
    f"GOCSPX-{ALNUM}",
    f"abc8Q~{ALNUM}",
    f"sha256~{ALNUM}",
    f"hvs.{ALNUM}",
    f"dckr_pat_{ALNUM}",
    f"npm_{ALNUM}",
    f"pypi-AgEI{ALNUM}",
    f"dop_v1_{HEX}",
    f"glsa_{ALNUM}",
    f"NRAK-{ALNUM.upper()}",
    f"sk_live_{ALNUM}",
    f"SG.{ALNUM}.{ALNUM}",
    f"key-{HEX[:32]}",
    f"SK{HEX[:32]}",
    f"shpat_{HEX[:32]}",
    f"ATATT3{ALNUM}",
    f"dapi{HEX[:32]}",
    f"hf_{ALNUM}",
    f"sk-proj-{ALNUM}",
    f"123456789:AA{ALNUM}",
    f"AGE-SECRET-KEY-1{ALNUM.upper()}",
    "abcdef.0123456789abcdef",
    f"LS0tLS1CRUdJTiBSU0EgUFJJVkFURSBLRVktLS0tLQ{ALNUM}",
    "$apr1$abcdefgh$0123456789abcdefghijkl",
    "$2y$10$abcdefghijklmnopqrstuv",
    "eyJhbGciOiJSUzI1NiIsImtpZCI6IngifQ.eyJzdWIiOiJzeXN0ZW06c2VydmljZWFjY291bnQifQ.c2lnbmF0dXJl",
)


@pytest.mark.parametrize("text", [*ASSIGNED, *COMMANDS, *SHAPED])
def test_secrets_in_known_syntaxes_are_redacted(text: str) -> None:
    assert S not in redact(text)
    assert S not in redact(f"first line\n{text}\nlast line")
    assert S not in redact(f"{text} after")


@pytest.mark.parametrize("token", TOKENS)
@pytest.mark.parametrize("text", ["{}", "got {} from the file", '{{"x":"{}"}}', "x={},y=1", "a\\n{}\\nb"])
def test_tokens_are_redacted_by_their_format(token: str, text: str) -> None:
    assert token not in redact_known_patterns(text.format(token))


def test_corpus_of_secrets_has_at_least_150_examples() -> None:
    assert len({*ASSIGNED, *COMMANDS, *SHAPED, *TOKENS}) >= 150


def test_docker_credentials_are_redacted() -> None:
    text = '{"auths":{"registry.example.com":{"auth":"YWRhOmh1bnRlcjI="}}}'
    assert redact(text) == '{"auths":{"registry.example.com":{"auth":"(hidden)"}}}'


@pytest.mark.parametrize(
    "text",
    [
        "node general-01 is drained: 7 pods removed in 11s",
        "PodDisruptionBudget bank/ledger allows 0 disruptions",
        "https://10.0.0.1:6443/api/v1/nodes?limit=500&resourceVersion=7",
        "the ServiceAccount haulout/haulout may not list pods",
        "secretName: webhook-certificates",
        "tokenExpirationSeconds: 3600",
        "automountServiceAccountToken: false",
        "token: ${TOKEN}",
        "password: $(DB_PASSWORD)",
        "password: {{ .Values.password }}",
        "PASSWORD_FILE=/run/secrets/db",
        "--password-stdin --other",
        "PWD=/root",
        "the bypass: closed, the compass: north",
        "cloud.sap/maintenance-profile=general",
        "sha256:0123456789abcdef0123456789abcdef",
        "image: registry.example.com/haulout@sha256:0123456789abcdef",
        "2026-11-18T03:00:00Z level=info reason=Basic msg=authentication",
        '{"kind":"Node","metadata":{"name":"n1","uid":"7f3b1f6e-1e0b-4c55-9b43-0a5ef7a4c0de"}}',
        "password: ",
        '"token": null',
    ],
)
def test_text_without_secrets_is_unchanged(text: str) -> None:
    assert redact(text) == text


def test_only_the_value_is_redacted() -> None:
    assert redact(f"user=ada password={S} host=db") == "user=ada password=(hidden) host=db"
    assert redact(f'{{"token": "{S}", "node": "n1"}}') == '{"token": "(hidden)", "node": "n1"}'
    assert redact(f"Password={S};Server=db") == "Password=(hidden);Server=db"
    assert redact(f"curl -u ada:{S} https://x") == "curl -u ada:(hidden) https://x"


def test_secrets_in_separate_arguments_are_redacted() -> None:
    assert redact_arguments(["--password", S, "--port", "80"]) == ["--password", "(hidden)", "--port", "80"]
    assert redact_arguments(["curl", "-u", f"ada:{S}"]) == ["curl", "-u", "ada:(hidden)"]
    assert redact_arguments(["mysqladmin", "ping", f"-p{S}"]) == ["mysqladmin", "ping", "-p(hidden)"]
    assert redact_arguments(["--token", "$(TOKEN)", "--token", "--verbose"]) == [
        "--token",
        "$(TOKEN)",
        "--token",
        "--verbose",
    ]
    assert S not in "".join(redact_arguments(["sh", "-c", f"curl -u ada:{S} https://x"]))


@pytest.mark.parametrize(
    "name", ["SMTP_PASS", "db.pass", "pass", "clientKeyData", "authToken", "requirepass", "AWS_SECRET_ACCESS_KEY"]
)
def test_secret_names_are_recognized(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["node", "bypass", "secretName", "PASSWORD_FILE", "PWD", "passing", "compass", ""])
def test_other_names_are_not_secret(name: str) -> None:
    assert not is_secret_name(name)


def test_redacting_a_short_value_does_not_change_other_words() -> None:
    assert redact_values("the node general-01 has role: node1", ["node"]) == "the (hidden) general-01 has role: node1"
    assert redact_values("nodes, unschedulable", ["node", "able"]) == "nodes, unschedulable"
    assert redact_values("x=hunter2hunter2y", ["hunter2hunter2"]) == "x=(hidden)y"
    assert redact_values("found 'abcd', abcdefgh", ["abcd", "abcdefgh"]) == "found '(hidden)', (hidden)"


def _repetitive() -> Iterator[str]:
    yield from (
        "token",
        "token=",
        "token ",
        "token:",
        "token: ",
        'token="',
        "token='x ",
        '\\"token\\":\\"',
        "--token ",
        "--token",
        "-u a:",
        "eyJ",
        "eyJ.",
        "://",
        "://a@",
        "://a",
        "-----BEGIN ",
        "-----BEGIN PRIVATE KEY-----",
        "<token>",
        "<token a",
        "mysql ",
        "mysql -",
        "ghp_",
        "SG.aaaaaaaaaa",
        "$2y$",
        "Authorization: ",
        "Basic a",
        "password: [",
        "${",
        "{{",
        "a:b@",
        "ENV a ",
        "echo a:",
        "login a ",
        "abcdef.",
    )


@pytest.mark.parametrize("part", [*_repetitive()])
def test_redaction_time_grows_linearly_with_the_length(part: str) -> None:
    """Four times the text takes about four times as long; its square would take sixteen times as long."""
    short, long = (part * (size // len(part)) for size in (20_000, 80_000))
    allowed = 10 * min(_seconds(short) for _ in range(2)) + 0.1
    assert any(_seconds(long) < allowed for _ in range(2)), "twice, so that a busy machine does not count"


def _seconds(text: str) -> float:
    """Return the CPU time that redaction takes."""
    started = time.process_time()
    redact(text)
    return time.process_time() - started


@given(st.text(alphabet="token=:\"'{}[]<>&-u/@.\\ \n", max_size=80))
def test_redact_returns_a_string_for_any_text(text: str) -> None:
    assert isinstance(redact(text), str)


@given(
    st.text(alphabet="abcXYZ019!%+*_-", min_size=8, max_size=20), st.sampled_from(["password=", "token: ", "--secret "])
)
def test_any_value_after_a_secret_name_is_redacted(value: str, name: str) -> None:
    if value.startswith("-") or set(value) == {"*"}:
        return
    assert value not in redact(f"{name}{value}")
