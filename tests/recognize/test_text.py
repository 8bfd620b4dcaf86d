"""Lines as terminals, chats, Docker and Chinese systems write them: the same to search in, as they were to show."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpxdoctor.recognize.condense import condense
from lpxdoctor.recognize.text import Pasted, pasted


def read(text: str | bytes) -> Pasted:
    return pasted(condense([text.encode() if isinstance(text, str) else text]))


@pytest.mark.parametrize(
    ("line", "searched"),
    [
        ("\x1b[1;31mERROR\x1b[0m x\x1b]8;;http://a\x07b", "ERROR xb"),
        ("> > quoted", "quoted"),
        ("vllm-1  | INFO up", "INFO up"),
        ("|   0  NVIDIA L4   On  |", "|   0  NVIDIA L4   On  |"),
        ('could not select device driver \\"\\" with', 'could not select device driver "" with'),
        ("it says \u201ccdi\u201d\uff0c\u2018x\u2019", "it says \"cdi\",'x'"),
        ("bash: nvidia-smi\uff1a未找到命令", "bash: nvidia-smi:command not found"),
        ("打开失败: 设备上没有空间", "打开失败: No space left on device"),
        (
            "modprobe: 致命错误: 在目录 /lib/modules/6.1 下找不到模块 nvidia",
            "modprobe: FATAL: Module nvidia not found in directory /lib/modules/6.1",
        ),
    ],
)
def test_a_line_to_search_in(line: str, searched: str) -> None:
    assert read(line).searched == (searched,)


def test_what_is_shown_is_what_was_written() -> None:
    assert read("打开失败\uff1a设备上没有空间").shown == ("打开失败\uff1a设备上没有空间",)


def test_lines_within_a_line_keep_its_number() -> None:
    text = read('a\n{"log":"one\\ntwo\\n"}\nc')
    assert text.searched == ("a", '{"log":"one', "two", '"}', "c")
    assert text.numbers == (1, 2, 2, 2, 3)


def test_a_progress_bar_is_several_lines() -> None:
    assert read("10%\r90%\rdone\r\n").searched == ("10%", "90%", "done")


def test_a_path_of_windows_is_no_end_of_a_line() -> None:
    assert read(r"C:\Users\new\n").searched[0].startswith(r"C:\Users")


def test_gbk_is_read_where_utf_8_is_not() -> None:
    assert read("显存不足".encode("gb18030")).shown == ("显存不足",)


@given(st.binary())
def test_any_bytes_are_lines(data: bytes) -> None:
    text = read(data)
    assert len(text.shown) == len(text.searched) == len(text.numbers)
    assert all("\n" not in line for line in text.searched)
