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


def over(value, reference):
    """Returns the quotient of two figures, None if either is missing."""
    return value / reference if value is not None and reference else None


def rows(trials, failed):
    """Returns a row for each client, server and scheme: a dictionary of figures; events of a watch have rows of their own. `failed` are
    runs without objects. A figure of which no run succeeded is None."""
    def of(client, server, scheme, alone):
        return [t for t in trials if (t["client"], t["server"], t["scheme"], t["alone"]) == (client, server, scheme, alone)]

    def has_failed(client, server, scheme, alone):
        return any((t["client"], t["server"], t["scheme"], t["alone"]) == (client, server, scheme, alone) for t in failed)

    def figure(function, values):
        return function(values) if values else None

    done = []
    for client, server in dict.fromkeys((t["client"], t["server"]) for t in [*trials, *failed]):
        found = {o["name"] for t in trials for o in t["objects"] if (t["client"], t["server"]) == (client, server)}
        for name in ["small", "event"] if "event" in found else ["small"]:
            reference = times(of(client, server, "default", True), name)
            alone_mean, alone_p95 = figure(mean, reference), figure(p95, reference)
            off_mbit = figure(rate, of(client, server, "off", False))
            for scheme in SCHEME_NAMES:
                beside = of(client, server, scheme, False)
                measured, mbit = times(beside, name), figure(rate, beside)
                row_mean, row_p95 = figure(mean, measured), figure(p95, measured)
                done.append({
                    "client": client, "server": server, "scheme": scheme, "what": name, "objects": len(measured),
                    "mean_ms": row_mean, "p95_ms": row_p95, "alone_mean_ms": alone_mean, "alone_p95_ms": alone_p95,
                    "mean_ratio": over(row_mean, alone_mean), "p95_ratio": over(row_p95, alone_p95), "mbit": mbit,
                    "rate_ratio": over(mbit, off_mbit), "has_failed": has_failed(client, server, scheme, False),
                    "alone_has_failed": has_failed(client, server, "default", True),
                })
    return done


def cell(form, value, missing):
    return form.format(value) if value is not None else missing


def table(trials, failed):
    """Returns the rows as a table in Markdown."""
    lines = ["| client | server | | alone: mean | mean | p95 | of alone: mean | p95 | download | of everything off |",
             "|---|---|---|--:|--:|--:|--:|--:|--:|--:|"]
    for row in rows(trials, failed):
        client = row["client"] + (", events" if row["what"] == "event" else "")
        alone, beside = ("failed" if row[key] else "no run" for key in ("alone_has_failed", "has_failed"))
        cells = [
            client, row["server"], SCHEME_NAMES[row["scheme"]], cell("{:.0f} ms", row["alone_mean_ms"], alone),
            cell("{:.0f} ms", row["mean_ms"], beside), cell("{:.0f} ms", row["p95_ms"], beside), cell("{:.2f}", row["mean_ratio"], ""),
            cell("{:.2f}", row["p95_ratio"], ""), cell("{:.2f} Mbit/s", row["mbit"], beside), cell("{:.1%}", row["rate_ratio"], "").replace("%", " %"),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
