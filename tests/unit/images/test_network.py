"""How a machine's way to package indexes reaches a build."""

import shlex
from pathlib import Path

from images.network import build_environment, ca_bundle, pip_settings


def parsed(text: str) -> dict[str, str]:
    return dict(word.split("=", 1) for word in shlex.split(text))


def test_an_index_of_pips_file_reaches_pip_and_uv(tmp_path: Path) -> None:
    (tmp_path / "pip.conf").write_text("[global]\nindex-url = https://mirror.example/simple\n")

    found = parsed(build_environment({}, pip_settings((tmp_path / "pip.conf",)), ca_bundle=None))

    assert found == dict.fromkeys(("PIP_INDEX_URL", "UV_INDEX_URL"), "https://mirror.example/simple")


def test_the_environment_wins_over_pips_file() -> None:
    environ = {"PIP_INDEX_URL": "https://from-environment.example"}

    found = parsed(build_environment(environ, {"index-url": "https://from-file.example"}, ca_bundle=None))

    assert found["PIP_INDEX_URL"] == "https://from-environment.example"


def test_the_users_file_wins_over_the_machines(tmp_path: Path) -> None:
    machine, user = tmp_path / "machine", tmp_path / "user"
    machine.write_text("[global]\nindex-url = https://machine.example\ntimeout = 5\n")
    user.write_text("[global]\nindex-url = https://user.example\n")

    assert pip_settings((machine, user)) == {"index-url": "https://user.example", "timeout": "5"}


def test_a_password_with_shell_characters_stays_whole() -> None:
    url = "https://user:pa$s'w ord`x`@mirror.example/simple"

    assert parsed(build_environment({"PIP_INDEX_URL": url}, {}, ca_bundle=None)) == {"PIP_INDEX_URL": url}


def test_percent_signs_in_pips_file_are_taken_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "pip.conf").write_text("[global]\nindex-url = https://u:p%40q@mirror.example\n")

    assert pip_settings((tmp_path / "pip.conf",))["index-url"] == "https://u:p%40q@mirror.example"


def test_nothing_else_of_the_environment_is_passed() -> None:
    assert build_environment({"AWS_SECRET_ACCESS_KEY": "x", "HOME": "/root"}, {}, ca_bundle=None) == ""


def test_certificates_are_named_by_their_path_inside_the_build(tmp_path: Path) -> None:
    found = parsed(build_environment({"SSL_CERT_FILE": "/host/ca.crt"}, {}, ca_bundle=tmp_path))

    assert found == dict.fromkeys(
        ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE"), "/run/secrets/ca-bundle"
    )


def test_the_first_bundle_that_exists_is_used(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("certificates")
    environ = {"SSL_CERT_FILE": str(tmp_path / "gone.crt"), "PIP_CERT": str(tmp_path / "ca.crt")}

    assert ca_bundle(environ, {}) == tmp_path / "ca.crt"
