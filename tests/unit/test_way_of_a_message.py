"""The count of functions on the way of a message: what it counts, and what it holds the page to."""

from __future__ import annotations

from tests.unit.test_tree import load

tool = load("way_of_a_message")


def test_a_way_is_of_functions_of_acquit_each_in_the_order_of_its_first_call() -> None:
    for first, steady in tool.ways().values():
        names = [f"{tool.module_of(code)}.{code.co_qualname}" for code in steady.calls]
        assert names[0] == "protocol.connection.Connection.receive_data"
        order = ("Core.handle", "SegmentedJournal.append", "WriteBatch.write_and_sync", "Core.synced", "data_to_send")
        places = [next(at for at, name in enumerate(names) if name.endswith(one)) for one in order]
        assert places == sorted(places)
        assert not any("comp>" in name or name.startswith("store.memory.") for name in names)
        figures, before = steady.figures(), first.figures()
        assert figures["modules"] < figures["functions"] < figures["calls"]
        assert all(figures[one] < before[one] for one in figures)


def test_a_way_counts_calls_and_leaves_alone_who_else_looks_at_them() -> None:
    way = tool.Way()
    way.walk(lambda: (tool.durable("x"), tool.durable("y").encode(), None)[-1])
    made = {code.co_qualname: count for code, count in way.calls.items() if "Message." in code.co_qualname}
    assert made["Message.__init__"] == 2 and made["Message.encode"] == 1


def test_a_page_may_be_off_by_a_twentieth_and_no_more() -> None:
    page = "a\n<!-- way of a message -->\n| posted | 100 | 40 |\n<!-- end of way -->\nb\n"
    assert tool.faults(page, "| posted | 105 | 40 |\n") == []
    assert tool.faults(page, "| posted | 100 | 43 |\n") == ["| posted | 100 | 43 |"]
    assert tool.faults(page, "| posted | 94 | 40 |\n") == ["| posted | 94 | 40 |"]
    assert tool.faults(page, "| taken | 100 | 40 |\n") == ["| taken | 100 | 40 |"]
    assert tool.faults(page, "| posted | 100 | 40 |\n| taken | 1 | 1 |\n")
