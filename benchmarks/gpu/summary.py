"""All parts' figures as one page: what was measured, what is partial, what is missing."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.findings import ended_cases, partial_path
from benchmarks.gpu.parts import Part

from tandem.bench.records import BenchRecord, BenchRow

_VERSIONS = ("gpus", "cpu", "cores_usable", "python", "torch", "triton", "transformers",
             "accelerate", "tandem", "git_commit")  # fmt: skip


def summary_lines(parts: Sequence[Part], folder: Path, command: str) -> list[str]:
    """Markdown.

    Args:
        command: by which all was measured.
    """
    lines = [f"`{command}`", ""]
    told: Mapping[str, Any] | None = None
    for part in parts:
        record, state = _record(folder / f"{part.name}.json")
        lines += [f"## {part.name}{state}{_failure(folder, part)}", ""]
        if record is None:
            continue
        versions = {name: record.machine.get(name) for name in _VERSIONS}
        if versions != told:  # of every part, where parts were measured by different versions
            lines += [", ".join(f"{name} {value}" for name, value in versions.items()), ""]
            told = versions
        lines += [*_table(record.rows), "", *(f"- {note}" for note in record.notes)]
        lines += [""] if record.notes else []
    return lines


def left_lines(parts: Sequence[Part], folder: Path) -> list[str]:
    """Parts without a record, how far each is, and about how many calls they take."""
    left = [part for part in parts if not (folder / f"{part.name}.json").exists()]
    if not left:
        return ["nothing is left"]
    seconds = sum(part.limit_s for part in left)
    lines = [f"left: {len(left)} of {len(parts)} parts, {seconds:.0f} s by their limits:"]
    for part in left:
        ended = ended_cases(folder / f"{part.name}.json")
        state = f", {ended} cases have ended" if ended else ""
        lines.append(f"  {part.name}: at most {part.limit_s:.0f} s{state}{_failure(folder, part)}")
    return lines


def failure_path(folder: Path, part: Part) -> Path:
    """Where it says why a part failed in the call before."""
    return folder / f"{part.name}.failed"


def _failure(folder: Path, part: Part) -> str:
    path = failure_path(folder, part)
    return f", {path.read_text(encoding='utf-8').strip()}" if path.exists() else ""


def _record(path: Path) -> tuple[BenchRecord | None, str]:
    """What there is of a part, and a word on how much."""
    for each, state in ((path, ""), (partial_path(path), " (cut off)")):
        if each.exists():
            return BenchRecord.from_json(each.read_text(encoding="utf-8")), state
    return None, ": not measured"


def _table(rows: Sequence[BenchRow]) -> Iterator[str]:
    yield "| case | metric | who | value | spread | bound | of it |"
    yield "|---|---|---|---:|---:|---:|---:|"
    for row in rows:
        low, high = row.spread or (row.value, row.value)
        spread = "" if low == high else f"{low:.4g} to {high:.4g}"
        bound = "" if row.bound is None else f"{row.bound:.4g}"
        share = "" if row.fraction is None else f"{row.fraction:.2f}"
        yield (
            f"| {row.case} | {row.metric} | {row.variant} | {row.value:.4g} {row.unit} | {spread} "
            f"| {bound} | {share} |"
        )
