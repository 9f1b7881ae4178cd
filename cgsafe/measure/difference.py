"""What two effect tables disagree about, as text."""

from __future__ import annotations

from cgsafe.measure.table import Effect

GROUPS = (
    ("capture", "another outcome of the capture"),
    ("replay", "another outcome of the replay"),
    ("sync", "another number of waits"),
    ("error", "another error"),
)


def report(old: tuple[dict[str, str], list[Effect]], new: tuple[dict[str, str], list[Effect]]) -> str:
    """A report in sections; one line says that there is no difference."""
    before = {row["id"]: row for row in old[1]}
    after = {row["id"]: row for row in new[1]}
    both = sorted(set(before) & set(after))
    lines = [f"old: {_title(*old)}", f"new: {_title(*new)}"]
    # What a probe measured is only comparable while its code is the same.
    changed = [name for name in both if _code(before[name]) != _code(after[name])]
    same = [name for name in both if name not in set(changed)]
    told: set[str] = set()
    for field, title in GROUPS:
        default = 0 if field == "sync" else "-"
        found = []
        for name in same:
            was, now = before[name].get(field, default), after[name].get(field, default)
            if was == now or name in told:
                continue
            told.add(name)  # the gravest difference of a probe is told, what follows from it is not
            found.append(f"  {name}: {was} -> {now}    {_short(after[name])}")
            if field == "capture" and after[name].get("error"):
                found.append(f"      {after[name]['error']}")
        _section(lines, title, found)
    _section(lines, "other code, not compared", [f"  {name}    {_short(after[name])}" for name in changed])
    for title, some, others in (("only in the old table", before, after), ("only in the new table", after, before)):
        rows = [some[name] for name in sorted(set(some) - set(others))]
        _section(lines, title, [f"  {row['id']}: {row['capture']}    {_short(row)}" for row in rows])
    if len(lines) == 2:
        lines.append("no difference")
    return "\n".join(lines) + "\n"


def _title(head: dict[str, str], rows: list[Effect]) -> str:
    cuda = f"CUDA {head.get('cuda', '?')}"
    return f"PyTorch {head.get('release', '?')}, {cuda}, {head.get('device', '?')}, {head.get('date', '?')}: {len(rows)} probes"


def _code(row: Effect) -> tuple[str, str, bool]:
    return row["expr"], row.get("setup", ""), row.get("cold", False)


def _short(row: Effect) -> str:
    first, *rest = str(row["expr"]).splitlines() or [""]
    return f"`{first[:90]}{' ...' if rest or len(first) > 90 else ''}`"


def _section(lines: list[str], title: str, found: list[str]) -> None:
    if found:
        count = sum(not line.startswith("      ") for line in found)
        lines += ["", f"{title} ({count})", *found]
