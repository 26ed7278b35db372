"""From objects to figures: times relative to those alone, and the rate of the large files relative to plain HTTP/2's."""

SCHEME_NAMES = {"off": "everything off", "lowat": "little unsent data", "default": "default"}


def mean(values):
    return sum(values) / len(values)


def p95(values):
    """The smallest value that is not below 95 % of them."""
    ordered = sorted(values)
    return ordered[-(-len(ordered) * 95 // 100) - 1]


def times(trials, name):
    """Returns the times of the small objects or events of runs of one kind, in milliseconds."""
    return [o["ms"] for trial in trials for o in trial["objects"] if o["name"] == name and (trial["alone"] or o["beside"])]


def rate(trials):
    """Returns the rate of the large files in Mbit/s."""
    bigs = [o for trial in trials for o in trial["objects"] if o["name"] == "big"]
    return sum(o["bytes"] for o in bigs) * 8e-3 / sum(o["ms"] for o in bigs)


def rows(trials):
    """Returns a row for each client, server and scheme: a dictionary of figures; events of a watch have rows of their own."""
    def of(client, server, scheme, alone):
        return [t for t in trials if (t["client"], t["server"], t["scheme"], t["alone"]) == (client, server, scheme, alone)]

    done = []
    for client, server in dict.fromkeys((t["client"], t["server"]) for t in trials):
        for name in ("small", "event"):
            reference = times(of(client, server, "default", True), name)
            for scheme in SCHEME_NAMES:
                beside, off = of(client, server, scheme, False), of(client, server, "off", False)
                measured = times(beside, name)
                if not measured or not reference:
                    continue
                done.append({
                    "client": client, "server": server, "scheme": scheme, "what": name, "objects": len(measured),
                    "mean_ms": mean(measured), "p95_ms": p95(measured), "alone_mean_ms": mean(reference),
                    "alone_p95_ms": p95(reference), "mean_ratio": mean(measured) / mean(reference),
                    "p95_ratio": p95(measured) / p95(reference), "mbit": rate(beside),
                    "rate_ratio": rate(beside) / rate(off) if off else None,
                })
    return done


def table(trials):
    """Returns the rows as a table in Markdown."""
    lines = ["| client | server | | alone: mean | mean | p95 | of alone: mean | p95 | download | of everything off |",
             "|---|---|---|--:|--:|--:|--:|--:|--:|--:|"]
    for row in rows(trials):
        client = row["client"] + (", events" if row["what"] == "event" else "")
        off = f"{row['rate_ratio'] * 100:.1f} %" if row["rate_ratio"] else ""
        lines.append(
            f"| {client} | {row['server']} | {SCHEME_NAMES[row['scheme']]} | {row['alone_mean_ms']:.0f} ms "
            f"| {row['mean_ms']:.0f} ms | {row['p95_ms']:.0f} ms | {row['mean_ratio']:.2f} | {row['p95_ratio']:.2f} "
            f"| {row['mbit']:.2f} Mbit/s | {off} |")
    return "\n".join(lines)
