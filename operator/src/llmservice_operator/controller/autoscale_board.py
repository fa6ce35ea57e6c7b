"""Where a reconcile and the scaling loop meet: the one says what there is, the other what is wanted.

In memory only: what must outlive the process is in the service's status, and subjects come with the next reconcile.
"""

from collections.abc import Mapping

from llmservice_operator.controller.autoscale_outcome import Outcome
from llmservice_operator.controller.autoscale_subject import Subject
from llmservice_operator.controller.keys import Key


class Board:
    """The newest subject and outcome of each service."""

    def __init__(self) -> None:
        self._subjects: dict[Key, Subject] = {}
        self._outcomes: dict[Key, Outcome] = {}

    def observe(self, key: Key, subject: Subject | None) -> None:
        """Take what a reconcile found; None: there is nothing to look after any more."""
        if subject is None:
            self._subjects.pop(key, None)
            self._outcomes.pop(key, None)
            return
        known = self._outcomes.get(key)
        if known is not None and known.uid != subject.uid:
            del self._outcomes[key]
        self._subjects[key] = subject

    def subjects(self) -> Mapping[Key, Subject]:
        """All services that are looked after."""
        return self._subjects

    def conclude(self, key: Key, outcome: Outcome) -> None:
        """Take what the loop found, unless the service has gone meanwhile."""
        subject = self._subjects.get(key)
        if subject is not None and subject.uid == outcome.uid:
            self._outcomes[key] = outcome

    def outcome(self, key: Key, uid: str) -> Outcome | None:
        """The newest outcome of this very service."""
        found = self._outcomes.get(key)
        return found if found is not None and found.uid == uid else None
