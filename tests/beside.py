"""What a test has done beside it: a function in, its result or its exception in the test that started it out."""

from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")


@contextmanager
def beside(work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> Generator["Future[_T]"]:
    """Do something in a thread and yield its future; the block ends when it has ended, and raises what it raised.

    A thread of its own would raise into whatever test comes next, and an exception of the block goes first.
    """
    with ThreadPoolExecutor(1) as thread:
        future = thread.submit(work, *args, **kwargs)
        yield future
    future.result()
