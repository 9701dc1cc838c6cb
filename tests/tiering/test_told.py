"""What changes while no tierer is open is told to the next one, in the opening or right behind it."""

from tierd.base.ids import Uuid
from tierd.tiering import messages as m
from tierd.tiering.options import TopicState
from tierd.tiering.told import Told

KEPT, GONE = Uuid(b"k" * 16), Uuid(b"g" * 16)


class Tierer:
    def __init__(self) -> None:
        self.open = False
        self.heard: list[m.Message] = []
        self.told = Told(lambda: self.open, self.heard.append)

    def topics_at_start(self) -> list[TopicState]:
        return list(self.told.all_of_it()[1])


def topic(topic_id: Uuid, **config: str) -> TopicState:
    return TopicState(topic="t", topic_id=topic_id, partitions=1, config=config, created_ms=1, adopted=False)


def test_what_changes_before_the_start_is_told_with_it() -> None:
    tierer = Tierer()
    tierer.told.begin([], [topic(KEPT)])
    tierer.told.topic_changed(topic(KEPT, a="1"))
    assert tierer.topics_at_start() == [topic(KEPT, a="1")]
    tierer.open = True
    tierer.told.catch_up()
    assert tierer.heard == []


def test_what_changes_during_the_start_is_told_once_behind_it() -> None:
    tierer = Tierer()
    tierer.told.begin([], [topic(KEPT)])
    tierer.topics_at_start()
    tierer.told.topic_changed(topic(KEPT, a="1"))
    tierer.told.topic_changed(topic(KEPT, a="2"))
    tierer.told.topic_changed(topic(GONE))
    tierer.told.forget_topic(GONE)
    tierer.open = True
    tierer.told.catch_up()
    tierer.told.catch_up()
    assert tierer.heard == [m.TopicChanged(topic(KEPT, a="2"))]


def test_an_open_tierer_hears_at_once_and_the_next_one_again() -> None:
    tierer = Tierer()
    tierer.open = True
    tierer.told.topic_changed(topic(KEPT))
    tierer.told.topic_deleted("t", KEPT, 1, deleted_ms=7)
    first, second = tierer.heard
    assert first == m.TopicChanged(topic(KEPT))
    assert isinstance(second, m.TopicChanged)
    assert (second.state.deleted_ms, second.state.created_ms) == (7, 1)
    assert tierer.topics_at_start() == [second.state]
