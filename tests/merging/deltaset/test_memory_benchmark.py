"""The benchmark of a node's memory as a command: it says what it wants."""

from __future__ import annotations

import pytest

from benchmarks.deltaset_memory import main


@pytest.mark.parametrize(("arguments", "code"), [(["--help"], 0), (["wide", "7"], 2)])
def test_it_says_how_it_is_called(arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == code and "width" in "".join(capsys.readouterr())
