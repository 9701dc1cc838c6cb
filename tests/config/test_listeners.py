"""Several listeners: what each says for itself, what it takes from the first, and what is refused."""

from pathlib import Path

import pytest

from tierd.config.load import Options, SettingsError, load
from tierd.config.model import Settings
from tierd.config.places import HostPort

FILE = """
data = "d"
[listener]
ssl.certificate.location = "tls/server.pem"
ssl.key.location = "tls/server.key"
ssl.key.password = "hush"
ssl.ca.location = "/ca.pem"
[listeners.EXTERNAL]
address = "0.0.0.0:9093"
advertised = "broker.example.org:9093"
security.protocol = "SASL_SSL"
sasl.enabled.mechanisms = ["PLAIN", "SCRAM-SHA-512"]
connections.max.reauth.ms = "1h"
[listeners.CERTS]
address = "0.0.0.0:9094"
advertised = "broker.example.org:9094"
security.protocol = "SSL"
ssl.client.auth = "required"
ssl.certificate.location = "tls/other.pem"
"""


def settings_of(tmp_path: Path, text: str, *sets: str) -> Settings:
    path = tmp_path / "tierd.toml"
    path.write_text(text)
    return load(Options(config=path, sets=sets), base=tmp_path)


def problems(tmp_path: Path, text: str, *sets: str) -> str:
    with pytest.raises(SettingsError) as refused:
        settings_of(tmp_path, text, *sets)
    return str(refused.value)


def test_each_says_its_own_and_takes_tls_and_sasl_from_the_first(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, FILE, "listeners.CERTS.ssl.client.auth=requested", "listeners.CERTS.address=:0")
    assert list(settings.endpoints) == ["PLAINTEXT", "CERTS", "EXTERNAL"]
    first, certs, external = settings.endpoints.values()
    assert not first.speaks_tls
    assert external.speaks_tls
    assert external.asks_sasl
    assert external.sasl.mechanisms == {"PLAIN", "SCRAM-SHA-512"}
    assert external.sasl.max_reauth_ms == 3_600_000
    assert external.tls == first.tls
    assert external.tls.key == tmp_path / "tls" / "server.key"
    assert certs.tls.certificate == tmp_path / "tls" / "other.pem"
    assert certs.tls.ca == Path("/ca.pem")
    assert certs.tls.client_auth == "requested"
    assert certs.address == HostPort("127.0.0.1", 0)
    assert certs.sasl == first.sasl
    assert external.advertise(9093) == HostPort("broker.example.org", 9093)


def test_the_first_is_called_as_one_likes(tmp_path: Path) -> None:
    assert list(settings_of(tmp_path, 'data = "d"', "listener.name=inside").endpoints) == ["INSIDE"]


def test_secrets_of_listeners_are_not_for_command_lines_and_never_shown(tmp_path: Path) -> None:
    said = problems(tmp_path, FILE, "listeners.CERTS.ssl.key.password=hush")
    assert "a secret on a command line" in said
    assert "hush" not in said
    assert "hush" not in repr(settings_of(tmp_path, FILE))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('[listeners.X]\naddress="0.0.0.0:1"', "listeners.X.address = "),
        ('[listeners.X]\naddress="0.0.0.0:1"', "listeners.X.allow.anonymous=true if that is meant"),
        ('[listeners.X]\naddress="h:1"\nsecurity.protocol="SSL"', "listeners.X.allow.anonymous=true if that is meant"),
        (
            '[listeners.X]\nsecurity.protocol="SASL_SSL"',
            "listeners.X.ssl.certificate.location: TLS needs",
        ),
        ('[listener]\nsecurity.protocol="SSL"\nssl.client.auth="required"', "listener.ssl.ca.location: clients'"),
        ('[listener]\nsecurity.protocol="SSL"\nssl.principal.mapping.rules="RULE:x"', "not a rule: RULE:x"),
        ('[listener]\nsecurity.protocol="SSL"\nssl.principal.mapping.rules="RULE:(/x/"', "not a regular expression"),
        (
            '[listeners.X]\nsecurity.protocol="SASL_PLAINTEXT"\nsasl.enabled.mechanisms="OAUTHBEARER"',
            "listeners.X.sasl.oauthbearer.jwks.location: OAUTHBEARER needs",
        ),
        ("[listeners.X]\nmax.connections=3", "listeners.X.max.connections = 3: unknown setting"),
        ('[listeners.x]\naddress=":1"', "listeners.x.address"),
        ('[listeners.PLAINTEXT]\naddress=":1"', "the first listener is called so"),
        ('[listeners.X]\naddress=":9092"', "another listener has this address"),
        ('[listeners.X]\nsecurity.protocol="TLS"', 'listeners.X.security.protocol = "TLS": String must be one of'),
        ('[listeners.X]\naddress="0.0.0.0:1"\nallow.anonymous=true', "set listeners.X.advertised"),
    ],
)
def test_contradictions(tmp_path: Path, text: str, reason: str) -> None:
    assert reason in problems(tmp_path, f'data = "d"\n{text}')


def test_what_a_listener_takes_over_is_wrong_once(tmp_path: Path) -> None:
    said = problems(tmp_path, 'data = "d"\n[listener]\nssl.client.auth="no"\n[listeners.X]\naddress=":1"')
    assert said.count("ssl.client.auth") == 1
