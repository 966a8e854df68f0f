"""Frames between shards survive any cut of their bytes, and are taken in order, each once."""

import json
import math
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from raydt.errors import ExchangeError, SequenceGapError, StaleEpochError
from raydt.exchange.links import Frame, FrameReader, Links, packed, proof, swap_together
from tests.refusals import refused

DTYPES = st.sampled_from([np.dtype(name) for name in ("?", "i1", "u2", "<i4", ">i8", "f4", "f8")])
ARRAYS = DTYPES.flatmap(lambda dtype: arrays(dtype, array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)))
CONTENTS = st.one_of(ARRAYS, st.dictionaries(st.text(min_size=1, max_size=5), ARRAYS, max_size=3))


def read(data, cuts=()):
    """The frames in some bytes that come in pieces."""
    reader, frames, pieces = FrameReader(), [], []
    for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        pieces.append(data[begin:end])
    for piece in pieces:
        while piece:
            space = reader.space
            count = min(len(space), len(piece))
            space[:count] = piece[:count]
            frame = reader.take(count)
            piece = piece[count:]
            frames += [] if frame is None else [frame]
    return frames


def named(content):
    return content if isinstance(content, dict) else {"": content}


def exactly(content):
    return {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in named(content).items()}


@given(st.lists(CONTENTS, min_size=1, max_size=3), st.data())
def test_frames_arrive_as_they_were_whatever_the_pieces(contents, data):
    sent = [Frame(7, seq, content) for seq, content in enumerate(contents, 1)]
    stream = b"".join(bytes(piece) for frame in sent for piece in packed(frame))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    found = read(stream, cuts)
    assert [(frame.epoch, frame.seq) for frame in found] == [(7, seq) for seq in range(1, len(sent) + 1)]
    assert [exactly(frame.content) for frame in found] == [exactly(frame.content) for frame in sent]


def test_a_strided_array_arrives_and_is_writable():
    (frame,) = read(b"".join(map(bytes, packed(Frame(1, 1, np.arange(12).reshape(3, 4)[:, 1:3])))))
    assert frame.content.tolist() == [[1, 2], [5, 6], [9, 10]]
    assert frame.content.flags.writeable


def head(described, length, magic=b"rdt1"):
    return struct.pack("<4sQQIQ", magic, 1, 1, len(described), length) + described


@pytest.mark.parametrize(
    "data",
    [
        head(b"[]", 0, b"GET "),
        head(b"{", 0),
        head(b"7", 0),
        head(json.dumps([["a", "O", 1]]).encode(), 8),
        head(json.dumps([["a", "<i8", -1]]).encode(), 8),
        head(json.dumps([["a", "<i8", 2]]).encode(), 8),
        head(json.dumps([[["a"], "<i8", 1]]).encode(), 8),
        head(json.dumps([["a", "nonsense", 1]]).encode(), 8),
        head(json.dumps([["a", "|u1", True]]).encode(), 1),
        head(json.dumps([["a", "|u1", *[1] * 100]]).encode(), 8) + bytes(8),
        head(json.dumps([["a", "|u1", 0, 1 << 47, 1 << 47]]).encode(), 0),
        head(json.dumps([["a", "V8", 1]]).encode(), 8),
        head(json.dumps([["a", "i8,i8", 1]]).encode(), 16),
        head(json.dumps({"a": "b"}).encode(), 8),
        head(b"[" * (1 << 20), 0),
        head(b"9" * 10_000, 0),
        head(b"\xff\xfe", 0),
        struct.pack("<4sQQIQ", b"rdt1", 1, 1, (1 << 20) + 1, 0),
        struct.pack("<4sQQIQ", b"rdt1", 1, 1, 1 << 30, 0),
    ],
)
def test_what_is_no_frame_is_refused(data):
    with refused("exchange.no_frame", ExchangeError):
        read(data)


def test_a_length_is_checked_before_there_is_room_for_it(monkeypatch):
    """A head that does not fit its description, or describes too much, has the reader make room for neither."""
    made, empty = [], np.empty
    monkeypatch.setattr(np, "empty", lambda length, **given: made.append(length) or empty(length, **given))
    for shape, length in ([1], 1 << 45), ([1 << 42], 8), ([], 1 << 62):
        with refused("exchange.no_frame", ExchangeError):
            read(head(json.dumps([["a", "<i8", *shape]]).encode(), length))
    assert max(made) < 100


@pytest.mark.parametrize("shape", [[1 << 44], [1 << 30, 1 << 29], [1 << 30, 1 << 30]])
def test_more_than_there_is_memory_for_is_refused_before_it_arrives(shape):
    length = 8 * math.prod(shape)
    with refused("exchange.large_frame", ExchangeError, bytes=length):
        read(head(json.dumps([["a", "<i8", *shape]]).encode(), length))


@given(CONTENTS, st.data())
def test_damaged_bytes_are_refused_or_are_a_frame(content, data):
    """Whatever arrives, a reader says that it is no frame, waits for more, or returns arrays."""
    stream = bytearray(b"".join(map(bytes, packed(Frame(1, 1, content)))))
    for _ in range(data.draw(st.integers(1, 3))):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    try:
        frames = read(bytes(stream))
    except ExchangeError:
        return
    assert all(isinstance(part, np.ndarray) for frame in frames for part in named(frame.content).values())


@pytest.mark.parametrize("shards", [1, 2, 3, 5])
def test_shards_swap_parts(shards):
    links = [Links(index, shards, 4) for index in range(shards)]
    for number in range(3):
        for one in links:
            for peer, frame in one.begin([np.array([number, one.index, to]) for to in range(shards)]):
                assert links[peer].receive(one.index, frame)
        for one in links:
            assert [part.tolist() for part in one.complete()] == [[number, i, one.index] for i in range(shards)]
            assert shards == 1 or one.complete() is None


PARTS = CONTENTS.filter(lambda content: not isinstance(content, dict) or len(content) > 0)


@given(st.integers(1, 3), st.integers(1, 3), st.data())
def test_shards_of_one_process_swap_by_one_frame_for_each_other_process(processes, n, data):
    shards = processes * n
    alike = data.draw(st.lists(st.booleans(), min_size=shards, max_size=shards))
    made = [
        [data.draw(PARTS)] * shards if same else data.draw(st.lists(PARTS, min_size=shards, max_size=shards))
        for same in alike
    ]
    sent = []  # by process: what it has for each

    def keep(parts):
        sent.append(parts)
        return parts

    def arrived(content):
        (frame,) = read(b"".join(map(bytes, packed(Frame(1, 1, content)))))
        return frame.content

    for process in range(processes):
        swap_together(keep, made[process * n :][:n])
    for process in range(processes):
        theirs = [arrived(parts[process]) for parts in sent]
        received = swap_together(lambda parts, theirs=theirs: theirs, made[process * n :][:n])
        for own, parts in enumerate(received):
            expected = [exactly(of_shard[process * n + own]) for of_shard in made]
            assert [exactly(part) for part in parts] == expected


def test_a_shard_may_be_one_swap_ahead_and_repeats_have_no_effect():
    first, second = Links(0, 2, 1), Links(1, 2, 1)
    ((_, ahead),) = first.begin([np.array([0]), np.array([1])])
    assert second.receive(0, ahead)
    assert second.complete() is None
    ((_, back),) = second.begin([np.array([2]), np.array([3])])
    assert [part.tolist() for part in second.complete()] == [[1], [3]]
    assert first.receive(1, back)
    assert [part.tolist() for part in first.complete()] == [[0], [2]]
    assert not first.receive(1, back)
    assert not second.receive(0, ahead)
    ((_, next_one),) = first.begin([np.array([4]), np.array([5])])
    assert first.complete() is None
    assert second.receive(0, next_one)
    with refused("exchange.gap", SequenceGapError, shard=1, seen=2, sent=3):
        second.receive(0, Frame(1, 3, np.array([9])))
    second.begin([np.array([6]), np.array([7])])
    assert [part.tolist() for part in second.complete()] == [[5], [7]]


def test_frames_out_of_order_and_of_other_epochs_are_refused():
    links = Links(1, 3, 5)
    for epoch in (4, 6):
        with refused("exchange.other_epoch", StaleEpochError, shard=1, epoch=5, sent=epoch):
            links.receive(0, Frame(epoch, 1, np.array([1])))
    with refused("exchange.gap", SequenceGapError, shard=1, seen=0, sent=2):
        links.receive(0, Frame(5, 2, np.array([1])))
    assert links.receive(0, Frame(5, 1, np.array([1])))


def test_a_proof_is_of_one_secret_epoch_direction_and_challenge():
    given = (b"secret", 3, 0, 1, b"a" * 32 + b"b" * 32)
    others = [(b"Secret", *given[1:]), (given[0], 4, *given[2:]), (b"secret", 3, 1, 0, given[4])]
    others.append((*given[:4], b"b" * 32 + b"a" * 32))
    assert len(proof(*given)) == 32
    assert proof(*given) == proof(*given)
    assert proof(*given) not in [proof(*other) for other in others]


def test_a_description_that_is_nested_too_deeply_is_no_frame():
    with refused("exchange.no_frame", ExchangeError):
        read(head(b"[" * 100_000, 0))
