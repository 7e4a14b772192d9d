"""Keys and tokens are long, random and of the expected letters."""

import hashlib

from trackside.auth import tokens


def test_keys_and_tokens_differ_every_time() -> None:
    for make in (tokens.new_token, tokens.new_access_key, tokens.new_secret_key):
        assert len({make() for _ in range(50)}) == 50


def test_an_access_key_is_twenty_capitals_and_digits() -> None:
    key = tokens.new_access_key()
    assert len(key) == 20
    assert key.isascii()
    assert key.isalnum()
    assert key == key.upper()


def test_a_secret_key_is_forty_letters_and_digits() -> None:
    key = tokens.new_secret_key()
    assert len(key) == 40
    assert key.isascii()
    assert key.isalnum()


def test_a_token_is_kept_as_its_sha256() -> None:
    assert tokens.digest("tok") == hashlib.sha256(b"tok").hexdigest()
    assert len(tokens.new_token()) >= 43
