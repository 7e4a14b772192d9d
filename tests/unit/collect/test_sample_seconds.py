"""How often everything is measured: every 5 seconds, or what the configuration says, within bounds."""

from pathlib import Path

import pytest

from trackside.config import load_settings
from trackside.domain.errors import Invalid


def test_by_default_every_five_seconds() -> None:
    assert load_settings(None).sample_seconds == 5


@pytest.mark.parametrize("seconds", ["1", "2.5", "60"])
def test_between_one_second_and_a_minute(tmp_path: Path, seconds: str) -> None:
    file = tmp_path / "trackside.toml"
    file.write_text(f"sample_seconds = {seconds}\n")
    assert load_settings(file).sample_seconds == float(seconds)


@pytest.mark.parametrize("seconds", ["0", "0.9", "61", "-5", "nan"])
def test_anything_else_is_refused_with_what_is_allowed(tmp_path: Path, seconds: str) -> None:
    file = tmp_path / "trackside.toml"
    file.write_text(f"sample_seconds = {seconds}\n")
    with pytest.raises(Invalid, match="sample_seconds must be 1 to 60"):
        load_settings(file)
