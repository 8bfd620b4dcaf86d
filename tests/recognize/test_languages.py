"""Programs speak the language of the login: what they say is read in English, and nothing else is changed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpxdoctor.recognize.languages import english
from lpxdoctor.report.json import document
from tests.diagnosing import judged


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("modprobe: ERROR: could not insert 'nvidia': Kein passendes Gerät gefunden", "'nvidia': No such device"),
        ("OSError: [Errno 98] Adresse déjà utilisée", "Address already in use"),
        ("OSError: [Errno 28] No queda espacio en el dispositivo", "No space left on device"),
        ("PermissionError: [Errno 13] 許可がありません: '/root/.cache'", "Permission denied: "),
        ("bash: nvidia-smi: команда не найдена", "command not found"),
        ("nv-mmap.c:12:5: 错误:隐式声明函数", "nv-mmap.c:12:5: error: 隐式声明函数"),
        ("nv-mmap.c:12:5: Fehler: »follow_pfn«", "nv-mmap.c:12:5: error: "),
        (" nvidia-driver-580 : Hängt ab von: libnvidia-gl-580 (= 580.95.05)", "nvidia-driver-580 : Depends: libnvidia"),
        (
            "modprobe: 致命错误: 在目录 /lib/modules/6.8.0 下找不到模块 nvidia",
            "Module nvidia not found in directory /lib",
        ),
    ],
)
def test_a_message_is_read_in_english(said: str, meant: str) -> None:
    assert meant in english([said])[0]


@pytest.mark.parametrize("line", ["ein Fehler: im Text", "hängt ab von: dem Wetter", "No such file or directory", ""])
def test_what_only_looks_like_one_stays(line: str) -> None:
    assert english([line]) == (line,)


def test_a_refusal_in_another_language_is_diagnosed() -> None:
    text = "modprobe: ERROR: could not insert 'nvidia': Der notwendige Schlüssel ist nicht verfügbar"
    assert document(judged(text)).findings[0].id == "boot.signature-refused"


@given(st.lists(st.text()))
def test_any_lines_stay_as_many(lines: list[str]) -> None:
    assert len(english(lines)) == len(lines)
