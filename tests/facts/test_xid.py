"""Lines of the kernel log, of old and new drivers, become Xids; other lines do not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpxdoctor.evidence import Unreadable
from lpxdoctor.facts.xid import supporting, switch_events, xids
from tests.facts.builders_gpu import host_with

LOG = (
    "[   26.164326] NVRM: API mismatch: the client 'python3' (pid 467)",
    "[  474.729011] NVRM: Xid (PCI:0000:65:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    "Nov 29 06:12:00 gpu-12 kernel: NVRM: Xid (PCI:0000:CA:00): 13, pid=1234, name=python3, Graphics SM Warp Exception",
    "NVRM: Xid (0a:00): 31, Ch 00000010, engmask 00000101",
    "NVRM: Xid (PCI:0000:18:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
    "NVRM: Xid (PCI:0000:18:00): 45",
)


def test_each_form_of_the_line_is_read() -> None:
    lost, fault, old, recovery, bare = xids(LOG)
    assert (lost.address, lost.code, lost.process, lost.text) == ("0000:65:00", 79, "", "GPU has fallen off the bus.")
    assert (fault.address, fault.code, fault.pid, fault.process) == ("0000:ca:00", 13, 1234, "python3")
    assert str(fault) == "Graphics SM Warp Exception [python3, pid 1234]"
    assert (old.address, old.code) == ("0000:0a:00", 31)
    assert recovery.recovery == (1, "GPU Reset Required")
    assert lost.recovery is None
    assert (bare.code, bare.text) == (45, "")


def test_an_xid_belongs_to_one_gpu() -> None:
    lost = xids(LOG)[0]
    assert lost.on("0000:65:00.0")
    assert not lost.on("0000:66:00.0")


def test_switch_errors_are_told_apart_by_their_own_word() -> None:
    fatal, harmless = switch_events(
        [
            "[9.1] nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 24007, Fatal, Link 32 sourcetrack timeout error",
            "[9.2] nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error",
        ]
    )
    assert fatal.fatal
    assert not harmless.fatal
    assert fatal.address == "0000:05:00"


def test_a_log_that_may_not_be_read_is_no_empty_log() -> None:
    host = host_with(kernel_log=Unreadable("dmesg needs root"))
    with pytest.raises(Unreadable, match="needs root"):
        _ = host.kernel_log
    assert supporting(host) == ()  # what only supports a finding does without


@given(st.text() | st.text(alphabet="NVRM: Xid(PC0),154\n'<>=pidname", min_size=20))
def test_any_text_is_survived(text: str) -> None:
    for event in xids([text, "NVRM: Xid (PCI:" + text, "NVRM: Xid (PCI:0000:18:00): 154, " + text]):
        assert event.code >= 0
        str(event)
        _ = event.recovery
    switch_events([text, "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 1, " + text])
