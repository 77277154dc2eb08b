"""What the compiled reader of weights refuses."""

import os
import signal
from pathlib import Path

import pytest
import torch

from tandem.kernels import native

if not native.available():
    pytest.skip(native.unavailable_message(), allow_module_level=True)

from tandem.kernels import _native

WHOLE = (0, 0, 8192, 0)


@pytest.fixture
def descriptor(tmp_path: Path):
    path = tmp_path / "weights"
    path.write_bytes(os.urandom(8192))
    opened = os.open(path, os.O_RDONLY)
    yield opened
    os.close(opened)


def reader(
    descriptor: int,
    *extents: tuple[int, int, int, int],
    slots: torch.Tensor | None = None,
    base: int = 0,
    alignment: int = 1,
) -> _native.WeightReader:
    memory = torch.zeros(2, 8192, dtype=torch.uint8) if slots is None else slots
    layers = [(base, list(extents))]
    copies = [[(descriptor, "weights")]]
    return _native.WeightReader(copies, layers, memory, 2, 4096, alignment)


def test_the_first_layers_are_read_at_once_and_no_more(descriptor: int) -> None:
    slots = torch.zeros(2, 8192, dtype=torch.uint8)
    made = reader(descriptor, WHOLE, slots=slots)
    os.lseek(descriptor, 0, os.SEEK_SET)
    expected = torch.frombuffer(bytearray(os.read(descriptor, 8192)), dtype=torch.uint8)
    while made.bytes_read[0] < 2 * 8192:
        os.sched_yield()
    made.stop()
    assert all(torch.equal(slot, expected) for slot in slots)
    assert made.bytes_read == [2 * 8192]


@pytest.mark.parametrize(
    ("extents", "message"),
    [
        ([], "needs extents"),
        ([(1, 0, 1, 0)], "names no file"),
        ([(0, 1, 8192, 0)], "beyond its file's end"),
        ([(0, 0, 0, 0)], "beyond its file's end"),
        ([(0, 0, 8192, 1)], "does not fit in a slot"),
        ([(0, 0, 1, -1)], "does not fit in a slot"),
    ],
)
def test_extents_must_lie_in_their_file_and_slot(
    descriptor: int, extents: list[tuple[int, int, int, int]], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        reader(descriptor, *extents)


def test_layers_and_blocks_must_fit(descriptor: int) -> None:
    with pytest.raises(ValueError, match="does not fit in a slot"):
        reader(descriptor, WHOLE, base=1)
    with pytest.raises(ValueError, match="multiples of the alignment"):
        reader(descriptor, WHOLE, alignment=3000)
    with pytest.raises(ValueError, match="slots"):
        reader(descriptor, WHOLE, slots=torch.zeros(8192, dtype=torch.uint8))


def test_a_stack_reads_the_layers_of_its_reader(descriptor: int) -> None:
    hidden = 16
    norm = _native.Norm(torch.ones(hidden), None, 1e-5)

    def matrix(outputs: int, inputs: int) -> _native.LinearWeight:
        return _native.LinearWeight(torch.zeros(outputs, inputs))

    layer = _native.Layer(
        heads=1,
        kv_heads=1,
        head_dim=hidden,
        attention_norm=norm,
        qkv=matrix(3 * hidden, hidden),
        query_norm=None,
        key_norm=None,
        output=matrix(hidden, hidden),
        post_attention_norm=None,
        mlp_norm=norm,
        up=matrix(32, hidden),
        down=matrix(hidden, 32),
        post_mlp_norm=None,
        activation=_native.Activation.RELU,
        gated=False,
    )
    made = reader(descriptor, WHOLE)
    for read, message in (([], "very layers"), ([0, 1], "very layers"), ([2], "ascending")):
        with pytest.raises(ValueError, match=message):
            _native.LayerStack([layer, layer], [0, 0], [0, 0], made, read)
    with pytest.raises(ValueError, match="very layers"):
        _native.LayerStack([layer, layer], [0, 0], [0, 0], None, [0])
    _native.LayerStack([layer, layer], [0, 0], [0, 0], made, [1])


class _TimerError(Exception):
    pass


def test_waiting_for_a_layer_can_be_interrupted(descriptor: int) -> None:
    def interrupt(*_: object) -> None:
        raise _TimerError

    made = reader(descriptor, *[WHOLE] * 500_000)  # takes longer than the timer
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        with pytest.raises(_TimerError):
            made.acquire(0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    with pytest.raises(RuntimeError, match="no layer is in use"):
        made.release()
    made.stop()
