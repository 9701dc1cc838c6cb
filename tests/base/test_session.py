"""Principals as texts."""

import pytest

from tierd.base.session import ANONYMOUS, NOBODY, Principal


@pytest.mark.parametrize("text", ["User:alice", "User:CN=a:b,O=c", "User:ANONYMOUS"])
def test_a_principal_and_its_text(text: str) -> None:
    assert str(Principal.parse(text)) == text


@pytest.mark.parametrize("text", ["", "alice", ":alice", "User:"])
def test_what_is_no_principal(text: str) -> None:
    with pytest.raises(ValueError, match="User:alice"):
        Principal.parse(text)


def test_who_says_nothing_is_anonymous() -> None:
    assert NOBODY.principal == ANONYMOUS == Principal.parse("User:ANONYMOUS")
