"""A regular expression in; words of which each matching text holds at least one out, to rule most texts out quickly."""

import re
from collections.abc import Iterator

_SHORTEST, _SHORTEST_CHINESE = 3, 2
_TOKEN = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?P<\w+>|\(\?<?[:=!]|[()|^$.]|[?*+]\??|\{\d*,?\d*\}\??|.", re.DOTALL
)
_OPTIONAL = re.compile(r"[?*]|\{0?,")
_LOOKS_ASIDE = ("(?!", "(?=", "(?<!", "(?<=")
_ESCAPED_CLASS = re.compile(r"\\[wWsSdDbBAZ\d]")

Words = frozenset[str]


def anchors(pattern: str) -> tuple[str, ...]:
    """Return such words in lower case, () where the pattern can match a text with none of its words."""
    pieces = _TOKEN.findall(pattern)
    return tuple(sorted(_any_of(iter(pieces))))


def _any_of(pieces: Iterator[str]) -> Words:
    """Return the words of alternatives, up to the end of their group; none where one alternative has none."""
    every: list[Words] = []
    options: list[Words] = []  # what each part of this alternative requires
    run = ""
    for piece in pieces:
        if piece in ("|", ")"):
            every.append(_best([*options, _word(run)]))
            options, run = [], ""
            if piece == ")":
                break
        elif piece.startswith("("):
            options.append(_word(run))
            inner, run = _any_of(pieces), ""
            options.append(frozenset() if piece in _LOOKS_ASIDE else inner)
        elif _OPTIONAL.match(piece):  # what may be repeated no times is not required
            if run:
                options.append(_word(run[:-1]))
            elif options:
                options[-1] = frozenset()
            run = ""
        elif plain := _plain(piece):
            run += plain
        else:
            options += [_word(run), frozenset()]
            run = ""
    else:
        every.append(_best([*options, _word(run)]))
    return frozenset().union(*every) if all(every) else frozenset()


def _word(run: str) -> Words:
    shortest = _SHORTEST if run.isascii() else _SHORTEST_CHINESE
    return frozenset({run.lower()}) if len(run) >= shortest else frozenset()


def _best(options: list[Words]) -> Words:
    """Return the option that rules out most: the one whose shortest word is longest."""
    return max(options, key=lambda words: min(map(len, words), default=0))


def _plain(piece: str) -> str:
    """Return the character that a piece stands for, "" where it stands for several or for none."""
    if piece.startswith("\\"):
        return "" if _ESCAPED_CLASS.fullmatch(piece) else piece[1:]
    return piece if len(piece) == 1 and piece not in "().|^$?*+" else ""
