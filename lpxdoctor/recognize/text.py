"""An excerpt's raw lines in; the same lines to show, and to search in without colours, quoting and translation, out."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from lpxdoctor.recognize.condense import Excerpt

_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])|[\x00-\x08\x0b\x0c\x0e-\x1a]"
)
# What mail and chat put before a line, and docker compose the name of a service.
_QUOTED = re.compile(r"^(?:[>│┃]\s?)+|^[\w.-]{1,40}\s*\|\s(?=\S)(?![|+])")
# Typographic quotes and full-width signs, as chats and Chinese keyboards write them.
_TYPOGRAPHIC = "\u2018\u2019\u201c\u201d\uff1a\uff08\uff09\uff0c\uff1b\u3002\uff1d\u3000\u3010\u3011"
_LONG_BYTES, _LONG_LINES = 1024, 200
_PLAIN = str.maketrans(_TYPOGRAPHIC, "''\"\":(),;.= []")

# What programs say in Chinese -> what they say in English: glibc's strerror, bash, kmod, apt, as translated there.
_CHINESE = {
    "没有那个文件或目录": "No such file or directory",
    "没有该文件或目录": "No such file or directory",
    "权限不够": "Permission denied",
    "权限被拒绝": "Permission denied",
    "拒绝访问": "Permission denied",
    "不允许的操作": "Operation not permitted",
    "操作不被允许": "Operation not permitted",
    "没有那个设备": "No such device",
    "设备上没有空间": "No space left on device",
    "设备上没有剩余空间": "No space left on device",
    "地址已在使用": "Address already in use",
    "地址已被使用": "Address already in use",
    "只读文件系统": "Read-only file system",
    "拒绝连接": "Connection refused",
    "连接被拒绝": "Connection refused",
    "连接超时": "Connection timed out",
    "无法分配内存": "Cannot allocate memory",
    "打开的文件过多": "Too many open files",
    "可执行文件格式错误": "Exec format error",
    "无法打开共享对象文件": "cannot open shared object file",
    "无法打开共享目标文件": "cannot open shared object file",
    "未找到命令": "command not found",
    "找不到命令": "command not found",
    "键被服务所拒绝": "Key was rejected by service",
    "密钥被服务拒绝": "Key was rejected by service",
    "密钥被拒绝": "Key was rejected by service",
    "致命错误": "FATAL",
    "已杀死": "Killed",
    "总线错误": "Bus error",
    "下列软件包有未满足的依赖关系": "The following packages have unmet dependencies",
    "无法定位软件包": "Unable to locate package",
}
_IN_CHINESE = re.compile("|".join(sorted(map(re.escape, _CHINESE), key=len, reverse=True)))
_NO_MODULE = re.compile(r"(?:在目录 (\S+) (?:下|中)?)?(?:找不到|未找到|没有找到)模块 (\S+)")


@dataclass(frozen=True)
class Pasted:
    """A text in lines: as they are shown, as they are searched in, and their numbers in what was given."""

    shown: tuple[str, ...]
    searched: tuple[str, ...]
    numbers: tuple[int, ...]
    total_lines: int
    whole: bool
    binary: bool = False

    @cached_property
    def text(self) -> str:
        """The lines to search in, as one text."""
        return "\n".join(self.searched) + "\n"


def pasted(excerpt: Excerpt) -> Pasted:
    """Return the text of an excerpt."""
    rows = [(number, line) for number, raw in _shortened(excerpt.lines) for line in _lines(_decoded(raw))]
    return Pasted(
        shown=tuple(line for _, line in rows),
        searched=tuple(_plain(line) for _, line in rows),
        numbers=tuple(number for number, _ in rows),
        total_lines=excerpt.total_lines,
        whole=excerpt.whole,
        binary=excerpt.binary,
    )


def _shortened(lines: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    """Yield lines, the long ones after the first hundreds cut: a text of nothing else is no log, and slow to search."""
    long = 0
    for number, raw in lines:
        long += len(raw) > _LONG_BYTES
        yield number, raw if long < _LONG_LINES else raw[:_LONG_BYTES]


def _decoded(raw: bytes) -> str:
    """Return a line's text: UTF-8, else what Chinese Windows writes, in which every byte means something."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("gb18030", "replace")


def _lines(line: str) -> Iterator[str]:
    """Yield the lines in a line: a log in JSON, or an error that holds another, writes their ends as escapes."""
    line = _ESCAPES.sub("", line)
    parts = re.split(r"\r(?!$)|(?<!\\)\\n(?![a-z]:\\)", line) if "\r" in line or "\\n" in line else [line]
    for part in parts:
        if part.strip() or len(parts) == 1:
            yield _QUOTED.sub("", part.rstrip("\r"))


def _plain(line: str) -> str:
    """Return a line with plain quotes, and in English where a program's Chinese words for it are known."""
    line = line.replace('\\"', '"').replace("\\t", "\t")
    if line.isascii():
        return line
    line = _NO_MODULE.sub(lambda found: f"Module {found[2]} not found in directory {found[1] or ''}", line)
    return _IN_CHINESE.sub(lambda found: _CHINESE[found[0]], line.translate(_PLAIN))
