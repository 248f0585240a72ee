"""The audit without Spark, for tests of its findings: same plan, same scan, same checks.

Only the queries that need all batches at once are plain loops here.
"""

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence

from tidelog.apps.audit.checking import (
    FOLDER,
    LOG_DIR,
    STRETCH,
    LogPlace,
    PassResult,
    ScanRow,
    check_rows,
    check_until_stable,
    uncut_files,
)
from tidelog.apps.audit.checks.divergence import Compared, Copy, Differing
from tidelog.apps.audit.folders.log_dir import is_stopped
from tidelog.apps.audit.folders.partition_folder import read_folder
from tidelog.apps.audit.scan.producers import ProducerSpan, follows, sequence_break
from tidelog.apps.audit.scan.stretch_scan import scan_stretch
from tidelog.apps.audit.scan.summary import SequenceBreak
from tidelog.apps.audit.source.batch_rows import framed_pieces
from tidelog.apps.audit.source.planning import SPLIT_BYTES, Planned, Unit, plan


class LoopQueries:
    def __init__(self, units: list[Unit], spans: dict[LogPlace, list[tuple[str, ProducerSpan]]]):
        self._units = units
        self._spans = spans

    def differing(self, compared: list[Compared]) -> Iterator[tuple[Compared, list[Differing]]]:
        batches: dict[tuple[str, int], dict[int, dict[str, Copy]]] = defaultdict(
            lambda: defaultdict(dict)
        )
        for unit in self._units:
            if unit.stretch is None or unit.partition is None:
                continue
            rows = batches[unit.partition.topic, unit.partition.partition]
            for framed in framed_pieces(unit, skip_damage=True):
                for at in range(len(framed.last)):
                    header = framed.headers[at]
                    rows[int(header["base_offset"])][unit.replica] = Copy(
                        int(framed.last[at]),
                        int(header["leader_epoch"]),
                        int(header["crc"]),
                        os.path.basename(unit.stretch.path),
                        int(framed.positions[at]),
                        int(header["count"]),
                        int(header["attributes"]),
                    )
        for each in compared:
            found = list(self._of(each, batches[each.topic, each.partition]))
            if found:
                yield each, found

    def _of(self, compared: Compared, rows: dict[int, dict[str, Copy]]) -> Iterator[Differing]:
        bounds = {each.replica: each for each in compared.bounds()}
        for base, found in sorted(rows.items()):
            copies = {
                name: copy
                for name, copy in found.items()
                if name in bounds
                and base >= bounds[name].start
                and copy.last_offset < bounds[name].until
            }
            last = max((copy.last_offset for copy in copies.values()), default=-1)
            covering = [b for b in bounds.values() if b.start <= base and b.until > last]
            if copies and (
                len({copy.identity for copy in copies.values()}) > 1 or len(copies) < len(covering)
            ):
                yield Differing(base, copies)

    def sequence_breaks(self) -> Iterator[tuple[LogPlace, SequenceBreak]]:
        for place, spans in self._spans.items():
            known: dict[int, ProducerSpan] = {}
            for file, span in sorted(spans, key=lambda each: each[1].first_offset):
                before = known.get(span.producer_id)
                known[span.producer_id] = span
                if before is not None and not follows(
                    before.last_epoch, before.last_sequence, span.first_epoch, span.first_sequence
                ):
                    yield place, sequence_break(before, span, os.path.basename(file))


def audit_in_process(
    paths: Sequence[str], *, deep: bool = False, split_bytes: int = SPLIT_BYTES
) -> PassResult:
    return check_until_stable(lambda folders: _run_pass(tuple(paths), deep, split_bytes, folders))


def _run_pass(
    paths: tuple[str, ...], deep: bool, split_bytes: int, folders: frozenset[str]
) -> PassResult:
    units = plan(Planned(paths, split_bytes, folders=folders))
    rows, spans = _scanned(units, deep)
    uncut = frozenset(uncut_files(rows))
    if uncut:
        again = plan(Planned(paths, split_bytes, uncut))
        kept = [u for u in units if u.stretch is None or u.stretch.path not in uncut]
        units = kept + again
        rows, spans = _scanned(units, deep)
    return check_rows(rows, LoopQueries(units, spans), is_stopped)


def _scanned(
    units: list[Unit], deep: bool
) -> tuple[list[ScanRow], dict[LogPlace, list[tuple[str, ProducerSpan]]]]:
    rows: list[ScanRow] = []
    spans: dict[LogPlace, list[tuple[str, ProducerSpan]]] = defaultdict(list)
    for unit in units:
        if unit.facts is not None:
            rows.append(ScanRow(LOG_DIR, unit.log_dir, None, None, None, unit.facts.to_json()))
            continue
        assert unit.partition is not None
        place = LogPlace(unit.log_dir, unit.partition.topic, unit.partition.partition)
        if unit.stretch is None:
            folder = read_folder(unit.folder).to_json()
            rows.append(ScanRow(FOLDER, *place, None, folder))
            continue
        found = scan_stretch(unit.stretch, deep)
        path = unit.stretch.path
        rows.append(ScanRow(STRETCH, *place, path, found.summary.to_json()))
        spans[place] += [(path, span) for span in found.producers]
    return rows, spans
