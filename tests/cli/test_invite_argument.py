"""What an argument may stand for."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from p2pnode.cli.invite_argument import read_code_argument
from p2pnode.wire.errors import UsageError

LINE = "python -m p2pnode join 3te7pXLQ"


@pytest.mark.parametrize("content", [LINE, f"\n\n  {LINE}  \nsomething else\n"])
def test_an_invite_is_read_from_a_file_or_standard_input(tmp_path: Path, content: str) -> None:
    """Arguments of a process can be read by everybody on the machine."""
    (tmp_path / "invite").write_text(content)
    assert read_code_argument(f"@{tmp_path / 'invite'}", io.StringIO()) == LINE
    assert read_code_argument("-", io.StringIO(content)) == LINE
    assert read_code_argument("3te7pXLQ", io.StringIO(content)) == "3te7pXLQ"


def test_where_there_is_no_invite_one_line_says_so(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    for argument, said in [
        ("-", "no invite in standard input"),
        (f"@{tmp_path / 'empty'}", "no invite in"),
        (f"@{tmp_path / 'missing'}", "No such file"),
        (f"@{tmp_path}", "directory"),
    ]:
        with pytest.raises(UsageError, match=said):
            read_code_argument(argument, io.StringIO())


def test_a_file_of_one_endless_line_is_cut(tmp_path: Path) -> None:
    (tmp_path / "long").write_text("x" * 1_000_000)
    assert len(read_code_argument(f"@{tmp_path / 'long'}", io.StringIO())) < 10_000
