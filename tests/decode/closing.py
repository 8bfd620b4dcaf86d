"""A server of a test in; it ended, with all that it served."""

import asyncio


async def close(server: asyncio.Server) -> None:
    """Take no more connections and end those that there are."""
    await asyncio.sleep(0.01)  # a task that is cancelled before its first step closes no stream
    server.close()
    served = asyncio.all_tasks() - {asyncio.current_task()}
    for task in served:
        task.cancel()
    await asyncio.gather(*served, return_exceptions=True)
    await asyncio.sleep(0)  # transports that were aborted close their sockets now
