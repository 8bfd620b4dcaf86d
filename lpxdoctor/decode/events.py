"""Body bytes of a completion in, its server-sent events out, told apart without decoding them."""

import re
from enum import Enum
from typing import Annotated, Any

import msgspec

from lpxdoctor.decode.http import ProtocolError

_EVENT_LIMIT = 1 << 20
# A line end is LF or CRLF; nobody sends the lone CR that the standard also allows.
_BLANK_LINE = re.compile(rb"\n\r?\n")
# Inside a JSON string a quote is escaped, so these bytes can only be the key itself.
_TOKENS = re.compile(rb'"choices"\s*:\s*\[\s*\{')
# What nearly every read of a stream is made of: a whole HTTP chunk of one whole event.
_WHOLE = re.compile(rb"([0-9A-Fa-f]{1,8})\r\n(data: [^\n]*)\n\n\r\n")
# How such an event begins, up to its text: the same in all events of an answer.
_OPENING = re.compile(rb'data: [^\n]*?"choices":\[\{(?:"index":[0-9]+,)?(?:"text":"|"delta":\{"content":")')
_END = b"\n\n\r\n"  # of an event and the HTTP chunk around it
_NEWLINE = ord("\n")  # a number is looked for in bytes several times as fast as bytes are
_NO_CHOICES = re.compile(rb'"choices"\s*:\s*\[\s*\]')
# What a chunk of a chat has when it may carry no token: only such ones are decoded.
_BARE_DELTA = re.compile(rb'"role"\s*:|"delta"\s*:\s*(?:\{\s*\}|null)|"content"\s*:\s*null')


class Kind(Enum):
    """What an event carries."""

    TOKENS = "tokens"
    BARE = "bare"  # a chunk of a chat without a token: its role, or only why it ends
    USAGE = "usage"
    ERROR = "error"
    DONE = "done"
    NOTHING = "nothing"  # a comment that keeps the connection alive, or a field without data


Count = Annotated[int, msgspec.Meta(ge=0)]


class Usage(msgspec.Struct, frozen=True):
    """Tokens as the server counted them."""

    prompt_tokens: Count = 0
    completion_tokens: Count = 0


class Delta(msgspec.Struct, frozen=True):
    """What a chunk adds to a chat; reasoning is generated text like any other, under one of two names."""

    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: Any = None


class Choice(msgspec.Struct, frozen=True):
    """One choice of an event; a completion has text, a chat a delta."""

    text: str | None = None
    delta: Delta | None = None
    finish_reason: str | None = None

    @property
    def has_text(self) -> bool:
        """Whether it adds anything to the answer."""
        delta = self.delta
        if delta is None:
            return bool(self.text)
        return bool(delta.content or delta.reasoning_content or delta.reasoning or delta.tool_calls)

    @property
    def is_bare(self) -> bool:
        """Whether it is a chat's chunk without a token; an empty text that comes without a role is one."""
        delta = self.delta
        return delta is not None and not self.has_text and (delta.role is not None or delta.content is None)


class Event(msgspec.Struct, frozen=True):
    """A decoded event; error is what the server put there, None when it put nothing."""

    choices: tuple[Choice, ...] = ()
    usage: Usage | None = None
    error: Any = None
    object: str = ""
    message: str = ""

    @property
    def is_error(self) -> bool:
        """Whether the server reports a failure; vLLM before 0.10 did so without the key "error"."""
        return self.error is not None or self.object == "error"


class Splitter:
    """Cuts a stream of server-sent events at its blank lines."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, body: bytes) -> list[bytes]:
        """Take the next body bytes and return the events that are complete with them, undecoded.

        Raises:
            ProtocolError: an event does not end within a megabyte.
        """
        if self._rest:
            body = self._rest + body
        events = body.split(b"\n\n") if b"\r" not in body else _BLANK_LINE.split(body)
        self._rest = events.pop()
        if len(self._rest) > _EVENT_LIMIT:
            raise ProtocolError(f"An event does not end within {_EVENT_LIMIT} bytes: {self._rest[:80]!r}")
        return events

    @property
    def is_between_events(self) -> bool:
        """Whether the next byte is the first of an event."""
        return not self._rest

    def end(self) -> list[bytes]:
        """Return what stands behind the last blank line: an event of a server that does not close its last one."""
        rest, self._rest = self._rest.strip(), b""
        return [rest] if rest else []


class Opening:
    """How the events with tokens of one answer begin, up to their text: an event that begins so is known by that."""

    __slots__ = ("_chat", "_heads", "_text")

    def __init__(self, event: bytes) -> None:
        """Take it from an event with tokens; where it does not tell enough, no read will be known by it."""
        match = _OPENING.match(event)
        self._text = match[0] if match else b""
        self._chat = self._text.endswith(b'{"content":"')
        self._heads: dict[int, bytes] = {}  # what such a read begins with, by its length

    def event_of(self, content: bytes) -> bytes | None:
        """Return the event of a read that is one whole HTTP chunk of one such event; None where it may not be that.

        It tells the same as only_tokens(). Slices and operators are several times as fast as the methods of bytes.
        """
        head = self._heads.get(len(content)) or self._head(len(content))
        begun = len(head)
        if content[:begun] != head or content[-4:] != _END or _NEWLINE in content[begun:-4]:
            return None
        if self._chat and b'"role"' in content[begun:]:
            return None
        return content[begun - len(self._text) : -4]

    def _head(self, length: int) -> bytes:
        digits = next((count for count in range(1, 9) if len(b"%x" % max(0, length - count - 4)) == count), 0)
        known = b"%x\r\n%b" % (max(0, length - digits - 4), self._text) if self._text else _END
        self._heads[length] = known
        return known


def only_tokens(content: bytes) -> list[bytes]:
    """Return the events of a read that is whole HTTP chunks of one event with tokens each; [] when it is not that.

    Between two chunks it tells the same as Response, Splitter and kind() together, for a fifth of their time.
    """
    found: list[tuple[bytes, bytes]] = _WHOLE.findall(content)
    left = len(content)
    for size, event in found:
        if int(size, 16) != len(event) + 2 or b'"choices":[{' not in event or (b'"delta"' in event and _is_bare(event)):
            return []
        left -= len(size) + len(event) + 6
    return [] if left else [event for _, event in found]


def kind(event: bytes) -> Kind:
    """Tell what an undecoded event carries.

    Raises:
        ProtocolError: it has data that are neither a completion's nor an error.
    """
    if b'"choices":[{' in event or _TOKENS.search(event):
        return Kind.BARE if b'"delta"' in event and _is_bare(event) else Kind.TOKENS
    if _NO_CHOICES.search(event):
        return Kind.USAGE
    payload = data(event)
    if not payload:
        return Kind.NOTHING
    if payload == b"[DONE]":
        return Kind.DONE
    if decode(event).is_error:
        return Kind.ERROR
    raise ProtocolError(f"An event that is no part of a completion: {event[:120]!r}")


def _is_bare(event: bytes) -> bool:
    if b'"delta":{"content":"' in event and b'"role"' not in event:
        return False
    return _BARE_DELTA.search(event) is not None and all(choice.is_bare for choice in decode(event).choices)


def data(event: bytes) -> bytes:
    """Return an event's data, without the field name."""
    lines = (line.rstrip(b"\r") for line in event.split(b"\n"))
    fields = [line[5:] for line in lines if line.startswith(b"data:")]
    return b"\n".join(field[1:] if field.startswith(b" ") else field for field in fields)


def decode(event: bytes) -> Event:
    """Decode an event.

    Raises:
        ProtocolError: its data are no JSON object of a completion.
    """
    try:
        return msgspec.json.decode(data(event), type=Event)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"An event that cannot be read ({error}): {event[:120]!r}") from None
