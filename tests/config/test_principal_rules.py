"""Names of certificates as user names; expected results as Kafka's SslPrincipalMapper gives them."""

import pytest

from tierd.config.principal_rules import mapped, parse_rules

DN = "CN=Duke,OU=ServiceUsers,O=Org,C=US"


@pytest.mark.parametrize(
    ("rules", "name", "user"),
    [
        ("DEFAULT", DN, DN),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", DN, "Duke"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L", DN, "duke"),
        ("RULE:^CN=(.*?),OU=(.*?),O=(.*?),C=(.*?)$/$1@$2/U", DN, "DUKE@SERVICEUSERS"),
        ("RULE:^CN=other$/x/, RULE:^CN=(?<who>[^,]+),.*$/${who}-$12-$9/L ,DEFAULT", DN, "duke-duke2-$9"),
        ("RULE:^cn=(.*?),ou=(.*?)$/$1/,DEFAULT", DN, DN),
        (r"RULE:^CN=(.*)\/(.*),C=(.*)$/\$$1\/$2/L", "CN=A/B,C=D", "$a/b"),
        ("RULE:.*/x/", DN, "xx"),
        ("RULE:^other$/x/", DN, None),
        ("", DN, None),
    ],
)
def test_rules(rules: str, name: str, user: str | None) -> None:
    assert mapped(parse_rules(rules), name) == user


@pytest.mark.parametrize(
    "rules", ["default", "DEFAULT/L", "RULE:CN/L", "RULE:a/b/X", "RULE:(/x/", "RULE:a/b/L DEFAULT"]
)
def test_what_is_no_rule(rules: str) -> None:
    with pytest.raises(ValueError, match=r"not a rule|not a regular expression"):
        parse_rules(rules)
