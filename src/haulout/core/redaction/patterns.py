"""Redacts secrets with a known pattern, whatever their name: tokens of well-known services, keys, credentials.

No pattern may scan a long run of characters and then fail, because the next attempt would scan the run again.
"""

import re

from haulout.core.redaction.values import REDACTED

_PEM = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    r".*?(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)",
    re.DOTALL,
)
# The start of a word, including after a line break that is written as an escape.
_START = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))"
_TOKENS = (
    r"gh[oprsu]_[A-Za-z0-9]{16,}",  # GitHub
    r"github_pat_\w{16,}",
    r"gl(?:agent|cbt|dt|ffct|imt|pat|ptt|rt|soat)-[\w.-]{16,}",  # GitLab
    r"xox[a-z]-[\w-]{6,}",  # Slack
    r"xapp-[\w-]{10,}",
    rf"{_START}(?:AKIA|ASIA)[A-Z0-9]{{16}}(?![A-Za-z0-9])",  # AWS
    r"AIza[\w-]{30,}",  # Google
    r"ya29\.[\w.-]{10,}",
    r"GOCSPX-[\w-]{10,}",
    rf"{_START}[\w.~-]{{3}}8Q~[\w.~-]{{20,}}",  # Microsoft Entra
    r"sha256~[\w-]{20,}",  # OpenShift
    r"hv[bsr]\.[\w-]{16,}",  # HashiCorp Vault
    rf"{_START}[\w-]{{14}}\.atlasv1\.[\w-]{{20,}}",  # Terraform
    r"dckr_[op]at_[\w-]{10,}",  # Docker Hub
    r"npm_[A-Za-z0-9]{30,}",
    r"pypi-AgEI[\w-]{10,}",
    r"rubygems_[0-9a-f]{32,}",
    r"do[oprt]_v1_[0-9a-f]{32,}",  # DigitalOcean
    r"gl(?:sa|c)_[\w=]{16,}",  # Grafana
    r"NRAK-[A-Z0-9]{16,}",  # New Relic
    r"sntry[su]_[\w=+/-]{16,}",  # Sentry
    r"[rs]k_(?:live|test)_\w{10,}",  # Stripe
    r"SG\.[\w-]{10,64}\.[\w-]{10,}",  # SendGrid
    rf"{_START}key-[0-9a-f]{{32}}\b",  # Mailgun
    rf"{_START}SK[0-9a-f]{{32}}\b",  # Twilio
    r"shp(?:at|ca|pa|ss)_[0-9a-f]{16,}",  # Shopify
    r"ATATT3[\w=-]{20,}",  # Atlassian
    r"lin_api_\w{16,}",  # Linear
    rf"{_START}dapi[0-9a-f]{{32}}\b",  # Databricks
    rf"{_START}hf_[A-Za-z0-9]{{20,}}",  # Hugging Face
    rf"{_START}sk-[\w-]{{20,}}",  # OpenAI and Anthropic
    rf"{_START}\d{{8,10}}:AA[\w-]{{30,}}",  # Telegram
    r"AGE-SECRET-KEY-1[A-Z0-9]{20,}",
    r"(?<=ocid1\.credential\.)[\w.-]+",  # Oracle Cloud
    rf"{_START}[a-z0-9]{{6}}\.(?=[a-z]{{0,15}}[0-9])[a-z0-9]{{16}}\b",  # bootstrap token of kubeadm
    r"LS0tLS1CRUdJTi(?:BSU0|BFQy|BQUk|BFTk|BPUE|BEU0)[\w+/=]*",  # base64 of a private key
    r"\$(?:apr1|2[abxy]|5|6|y|argon2\w{0,2}|scrypt)\$[^\s:\"',]{10,}",  # password hash
)
_CONTEXTS = (
    r"(?<=hooks\.slack\.com/)[\w/-]+",
    r"(?<=/api/webhooks/)[\w/-]+",  # Discord
    r"(?<=/webhookb2/)[^\s\"']+",  # Microsoft Teams
    r"(?<=office\.com/webhook/)[^\s\"']+",
    r"(?<=api\.telegram\.org/bot)[^/\s\"']+",
    r"(?<=/hooks/)[a-z0-9]{26}\b",  # Mattermost
    r"(?<=[?&]sig=)[^&\s\"']+",  # shared access signature of Azure
    r"(?<=[?&]key=)[^&\s\"']+",
    r"(?<=[Bb]earer )[\w.~+/=-]{8,}",
    r"(?<=[Bb]asic )(?=[A-Za-z+/]{0,100}(?:[0-9]|==?(?![\w=])))[A-Za-z0-9+/]{6,}={0,2}",
    r"(?<=://)[^/?#\s'\"]+(?=@)",  # credentials in a URL
    r"(?<=:)[^\s:@/'\"]+(?=@(?:tcp|unix|udp)\()",  # credentials in an address of Go's MySQL driver
)
_TOKEN = re.compile("|".join(_TOKENS))
_CONTEXT = re.compile("|".join(_CONTEXTS))
_DOCKER_AUTH = re.compile(r"(\\?[\"']auth\\?[\"']\s{0,3}:\s{0,3}\\?[\"'])[A-Za-z0-9+/=]{8,}")
_RUN = re.compile(r"[\w.-]{20,}")


def redact_known_patterns(text: str) -> str:
    """Return `text` without known secret patterns."""
    text = _PEM.sub(REDACTED, text)
    text = _RUN.sub(_redact_web_token, text)
    text = _CONTEXT.sub(REDACTED, text)
    text = _TOKEN.sub(REDACTED, text)
    return _DOCKER_AUTH.sub(rf"\g<1>{REDACTED}", text)


def _redact_web_token(match: re.Match[str]) -> str:
    """Hide a JSON web token. It may follow other characters, such as the `n` of an escaped line break."""
    run = match[0]
    at = run.find("eyJ")
    return run if at < 0 or run.count(".", at) < 2 else f"{run[:at]}{REDACTED}"  # noqa: PLR2004 - header.payload.signature
