"""Lines of facts in messages: none is too large, and none can be made to fill the memory."""

from __future__ import annotations

import os
import zlib

import pytest

from tensight.wire import MAX_MESSAGE_BYTES, WireError
from tensight.wire.facts import MOST_BYTES, facts_messages, received_facts


def test_lines_arrive_in_order() -> None:
    lines = [b'{"step":%d}\n' % number for number in range(1000)]
    (message,) = facts_messages(lines)
    assert received_facts(message.facts) == lines


def test_many_lines_are_several_messages() -> None:
    lines = [os.urandom(1 << 20).hex().encode() + b"\n" for _ in range(12)]
    messages = list(facts_messages(lines))
    assert len(messages) > 1
    assert all(message.ByteSize() <= MAX_MESSAGE_BYTES for message in messages)
    assert [line for message in messages for line in received_facts(message.facts)] == lines


def test_a_line_that_no_message_can_hold_is_left_out() -> None:
    messages = list(facts_messages([os.urandom(MAX_MESSAGE_BYTES + 1).replace(b"\n", b" "), b"{}\n"]))
    assert [received_facts(message.facts) for message in messages] == [[b"{}\n"]]


@pytest.mark.parametrize(
    "content", [b"nonsense", b"", zlib.compress(b"{}\n")[:-3], zlib.compress(bytes(MOST_BYTES + 1))], ids=len
)
def test_what_is_not_compressed_or_too_long_is_refused(content: bytes) -> None:
    with pytest.raises(WireError, match="facts"):
        received_facts(content)
