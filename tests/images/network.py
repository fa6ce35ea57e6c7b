"""How this machine reaches package indexes, handed to a build as secrets: no trace of it stays in an image."""

import configparser
import shlex
from collections.abc import Mapping
from pathlib import Path

CA_IN_BUILD = "/run/secrets/ca-bundle"
_SYSTEM_CA = "/etc/ssl/certs/ca-certificates.crt"
_PASSED = (
    "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST", "PIP_DEFAULT_TIMEOUT",
    "UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_EXTRA_INDEX_URL", "UV_INDEX", "UV_INSECURE_HOST", "UV_HTTP_TIMEOUT",
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
)  # fmt: skip
_CA_VARIABLES = ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE")
# pip's settings, and what they are called in the environment of pip and of uv.
_FROM_PIP_CONFIG = {
    "index-url": ("PIP_INDEX_URL", "UV_INDEX_URL"),
    "extra-index-url": ("PIP_EXTRA_INDEX_URL", "UV_EXTRA_INDEX_URL"),
    "trusted-host": ("PIP_TRUSTED_HOST", "UV_INSECURE_HOST"),
    "proxy": ("HTTP_PROXY", "HTTPS_PROXY"),
}


def pip_settings(paths: tuple[Path, ...]) -> dict[str, str]:
    """The `[global]` section of pip's configuration files, later files over earlier ones."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(paths)
    return dict(parser["global"]) if parser.has_section("global") else {}


def pip_config_paths(home: Path) -> tuple[Path, ...]:
    """Where pip looks on Linux: the machine's file, then the user's."""
    return (Path("/etc/pip.conf"), home / ".pip" / "pip.conf", home / ".config" / "pip" / "pip.conf")


def build_environment(environ: Mapping[str, str], pip: Mapping[str, str], *, ca_bundle: Path | None) -> str:
    """Shell assignments for the builds: index, proxy and certificates. The environment wins over pip's files."""
    found: dict[str, str] = {}
    for setting, names in _FROM_PIP_CONFIG.items():
        if value := " ".join(pip.get(setting, "").split()):
            found |= dict.fromkeys(names, value)
    found |= {name: environ[name] for name in _PASSED if environ.get(name)}
    if ca_bundle is not None:
        found |= dict.fromkeys(_CA_VARIABLES, CA_IN_BUILD)
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in sorted(found.items()))


def ca_bundle(environ: Mapping[str, str], pip: Mapping[str, str]) -> Path | None:
    """The file of certificates that this machine trusts, or None."""
    for candidate in (*(environ.get(name, "") for name in _CA_VARIABLES), pip.get("cert", ""), _SYSTEM_CA):
        if candidate and Path(candidate).is_file():
            return Path(candidate)
    return None
