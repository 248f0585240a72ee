"""Mutants that each remove one rule about several log directories of a broker."""

from tidelog.lab.mutants.mutant import Change, Mutant, mutant

_NODE = "tidelog.core.node.node"
_REPLICAS = "tidelog.core.node.hosting.replicas"
_ELECTION = "tidelog.core.controller.election"
_DIRECTORIES = "tidelog.core.storage.log_directories"
_COPY = "tidelog.core.storage.log_copy"
_REPORTER = "tidelog.core.node.membership.log_reporter"

RULES: tuple[Mutant, ...] = (
    mutant(
        "offline-replica-stays-in-sync",
        "a replica whose log directory failed leaves the ISR",
        "a partition would keep a leader that can't serve it (KIP-112)",
        Change(
            _ELECTION,
            "r in isr and r not in target.lost and r not in offline)",
            "r in isr and r not in target.lost)",
        ),
        only_stories=True,
    ),
    mutant(
        "acknowledged-on-a-failed-directory",
        "after a disk error no later effect of the step is carried out",
        "a producer would get an acknowledgement for a record that is in no log",
        Change(
            _REPLICAS,
            "            self._fail_requests(replica, effects)\n",
            "            for effect in effects:\n"
            "                self._carry_out[type(effect)](replica, effect)\n",
        ),
        Change(_NODE, "        self._turn.fail_answers(set(failed))\n", ""),
        only_stories=True,
    ),
    mutant(
        "empty-log-for-an-offline-one",
        "no new log replaces one that may be in a failed directory",
        "the only copy would be replaced by an empty log (ADR 46)",
        Change(
            _REPORTER,
            "                if self._directory.offline:\n"
            "                    self._log_offline(key)\n"
            "                    return\n",
            "",
        ),
        only_stories=True,
    ),
    mutant(
        "new-folder-before-the-old-one-goes",
        "the old folder of a moved log is renamed before the new one gets the partition's name",
        "after a crash between the renames the partition would be in both directories, as in Kafka",
        Change(
            _DIRECTORIES,
            "        try:\n            source.release(",
            "        self._in(move.target, copy.use)\n        try:\n            source.release(",
        ),
        Change(
            _DIRECTORIES,
            "        self._in(move.target, copy.use)\n\n    # -- the loss ledger",
            "\n    # -- the loss ledger",
        ),
    ),
    mutant(
        "complete-copy-deleted-at-startup",
        "after a crash between the renames the complete copy becomes the log",
        "the mark of a complete copy would be ignored, and the log be lost (ADR 46)",
        Change(_COPY, "if log is None or log in present:", "if folder:"),
    ),
    mutant(
        "copy-not-synced-before-the-switch",
        "all files of a copy are synced before it is marked as complete",
        "a power failure would lose records that were on stable storage (ADR 46)",
        Change(
            _COPY,
            "        self._target.sync_many(*self.take_unsynced())\n",
            "        self.take_unsynced()\n",
        ),
    ),
    mutant(
        "copy-of-a-deleted-topic-stays",
        "the deletion of a log ends its move and deletes the copy",
        "the copy would be in the way of a topic of the same name",
        Change(
            _DIRECTORIES,
            "            self.cancel_move(partition)\n            self._owner.pop",
            "            self._owner.pop",
        ),
        first_seed=970,
    ),
)

# The truncation must cut the segment that is being copied, in the few milliseconds of the copy: no
# simulated run did that so far. tests/core/storage/test_log_copy.py finds the mutant.
ESCAPED: tuple[Mutant, ...] = (
    mutant(
        "copy-kept-after-a-truncation",
        "a truncation restarts the copy of a log that moves",
        "the copy would have records that the log no longer has (ADR 46)",
        Change(
            _COPY, "if self._generation != self.log.generation:", "if self._generation is None:"
        ),
    ),
)
