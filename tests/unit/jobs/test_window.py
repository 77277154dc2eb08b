import asyncio

import pytest

from tandem.jobs.answerer import Load
from tandem.jobs.window import Window


async def enters_at_once(window: Window, load: Load) -> bool:
    entering = asyncio.ensure_future(window.enter(load))
    await asyncio.sleep(0)
    done = entering.done()
    if not done:
        entering.cancel()
    return done and entering.result()


@pytest.mark.asyncio
async def test_sequences_and_tokens_are_bounded() -> None:
    window = Window(3, 100)
    assert await enters_at_once(window, Load(2, 50))
    assert not await enters_at_once(window, Load(2, 10))
    assert not await enters_at_once(window, Load(1, 51))
    assert await enters_at_once(window, Load(1, 50))
    assert not await enters_at_once(window, Load(1, 1))


@pytest.mark.asyncio
async def test_any_request_fits_an_empty_window() -> None:
    window = Window(3, 100)
    assert await enters_at_once(window, Load(2048, 10**9))
    assert not await enters_at_once(window, Load(1, 1))
    window.leave(Load(2048, 10**9))
    assert await enters_at_once(window, Load(1, 1))


@pytest.mark.asyncio
async def test_a_waiting_request_enters_when_there_is_room_or_is_sent_away() -> None:
    window = Window(1, 100)
    assert await window.enter(Load(1, 1))
    entering = asyncio.ensure_future(window.enter(Load(1, 1)))
    await asyncio.sleep(0)
    window.leave(Load(1, 1))
    assert await entering
    entering = asyncio.ensure_future(window.enter(Load(1, 1)))
    await asyncio.sleep(0)
    window.close()
    assert not await entering
    assert not await window.enter(Load(1, 1))
