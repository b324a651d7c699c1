#!/usr/bin/env python3
"""Draws figures from the records of benches: raw-text.svg (how a model learnt) and scaling.svg (losses of small models, and the law
that was fitted to them).

    curves.py [--check]      --check compares instead of writing
"""
import json
import math
import pathlib
import sys

FOLDER = pathlib.Path(__file__).parent
RESULTS = FOLDER.parent.parent / "benchmarks/results"
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 380, 64, 150, 24, 52
STYLE = """
    .cv-paper { fill: #fffdfb; }
    .cv text { font-family: "Source Serif 4", "Noto Serif", Georgia, serif; font-size: 14px; fill: #2b2427; }
    .cv-axis { stroke: #4a4044; stroke-width: 1; } .cv-grid { stroke: #4a4044; stroke-width: 0.5; opacity: 0.2; }
    .cv-line { fill: none; stroke-width: 1.8; } .cv-dot { stroke: none; }
    .cv-c0 { stroke: #b5445f; color: #b5445f; } .cv-c1 { stroke: #3d6b8e; color: #3d6b8e; } .cv-c2 { stroke: #7a6a2f; color: #7a6a2f; }
    .cv-c3 { stroke: #4c7a4f; color: #4c7a4f; } .cv-c4 { stroke: #6b5f63; color: #6b5f63; } .cv-dot { fill: currentColor; }
    @media (prefers-color-scheme: dark) {
      .cv-paper { fill: #1d1a1b; } .cv text { fill: #efe6e8; } .cv-axis, .cv-grid { stroke: #b9adb1; }
      .cv-c0 { stroke: #e58ba1; color: #e58ba1; } .cv-c1 { stroke: #8fb8d8; color: #8fb8d8; } .cv-c2 { stroke: #cdbb77; color: #cdbb77; }
      .cv-c3 { stroke: #96c499; color: #96c499; } .cv-c4 { stroke: #b9adb1; color: #b9adb1; }
    }"""


def last_record(bench):
    records = [json.loads(file.read_text("utf-8")) for file in sorted((RESULTS / bench).glob("*.json"))]
    return max(records, key=lambda record: record["date"]) if records else None


def ticks(low, high):
    step = next(s for s in (0.1, 0.2, 0.5, 1, 2, 5, 10) if (high - low) / s <= 8)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 6) for i in range(first, int(high / step + 1e-9) + 1)]


def chart(title, about, lines, dots, x_name, y_name, x_ticks, log=False):
    """`lines` and `dots` are (name, colour, points); a name of None leaves the legend alone."""
    points = [p for _, _, part in [*lines, *dots] for p in part]
    across = math.log if log else float
    x_low, x_high = min(across(x) for x, _ in points), max(across(x) for x, _ in points)
    y_low, y_high = min(y for _, y in points), max(y for _, y in points)
    room = 0.05 * (y_high - y_low)
    y_low, y_high = y_low - room, y_high + room

    def place(x, y):
        return (LEFT + (across(x) - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT),
                TOP + (y_high - y) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM))

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" class="cv" viewBox="0 0 {WIDTH} {HEIGHT}">',
           f'  <title>{title}</title>', f'  <desc>{about}</desc>', f"  <style>{STYLE}\n  </style>",
           f'  <rect class="cv-paper" width="{WIDTH}" height="{HEIGHT}"/>']
    for y in ticks(y_low, y_high):
        _, at = place(points[0][0], y)
        out.append(f'  <line class="cv-grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        out.append(f'  <text x="{LEFT - 8}" y="{at + 5:.1f}" text-anchor="end">{y:g}</text>')
    for x, label in x_ticks:
        at, _ = place(x, y_low)
        out.append(f'  <text x="{at:.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{label}</text>')
    out.append(f'  <path class="cv-axis" fill="none" d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}"/>')
    out.append(f'  <text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 10}" text-anchor="middle">{x_name}</text>')
    out.append(f'  <text x="16" y="{TOP - 8}">{y_name}</text>')
    legend = 0
    for name, colour, part in lines:
        path = " ".join("{:.1f},{:.1f}".format(*place(x, y)) for x, y in part)
        out.append(f'  <polyline class="cv-line cv-c{colour}" points="{path}"/>')
        if name:
            y = TOP + 12 + 22 * legend
            out.append(f'  <line class="cv-line cv-c{colour}" x1="{WIDTH - RIGHT + 14}" x2="{WIDTH - RIGHT + 36}" y1="{y}" y2="{y}"/>')
            out.append(f'  <text x="{WIDTH - RIGHT + 42}" y="{y + 5}">{name}</text>')
            legend += 1
    for _, colour, part in dots:
        for x, y in part:
            out.append('  <circle class="cv-dot cv-c{}" r="3.4" cx="{:.1f}" cy="{:.1f}"/>'.format(colour, *place(x, y)))
    return "\n".join([*out, "</svg>"]) + "\n"


def raw_text():
    record = last_record("raw-text-to-chat")
    if record is None:
        return None
    curve = record["curve"]
    last = curve["held_out"][-1][0]
    steps = [(s, f"{s:,}") for s in range(0, last + 1, last // 4)]
    about = (f"The training loss falls from {curve['training'][0][1]:.1f} to {curve['training'][-1][1]:.1f} nats per token in {last:,} steps; the loss "
             f"on held-out text ends at {curve['held_out'][-1][1]:.2f} and is least at step {record['best']['step']:,}, {record['best']['loss']:.2f}.")
    best = [(record["best"]["step"], record["best"]["loss"])]
    return chart("Loss while a model learns from three texts", about, [("training", 4, curve["training"]), ("held-out text", 0, curve["held_out"])],
                 [(None, 0, best)], "step", "nats per token", steps)


def scaling():
    record = last_record("scaling-fit-cpu")
    if record is None:
        return None
    fit = record["fit"]
    sizes = sorted({run["parameters"] for run in record["runs"]})
    lines, dots = [], []
    for colour, size in enumerate(sizes):
        runs = sorted((run["tokens"], run["loss"]) for run in record["runs"] if run["parameters"] == size)
        low, high = runs[0][0], runs[-1][0]
        across = [low * (high / low) ** (i / 30) for i in range(31)]
        law = [(d, fit["floor"]["value"] + fit["size"] * size ** -fit["alpha"]["value"] + fit["data"] * d ** -fit["beta"]["value"]) for d in across]
        lines.append((f"{size / 1e3:.0f} thousand", colour % 5, law))
        dots.append((None, colour % 5, runs))
    tokens = sorted({run["tokens"] for run in record["runs"]})
    about = (f"Held-out losses of {len(record['runs'])} runs, from {max(r['loss'] for r in record['runs']):.2f} to {min(r['loss'] for r in record['runs']):.2f} "
             f"nats per token, beside the fitted law: they fall with tokens along curves that are nearly straight on this scale, and with parameters.")
    return chart("Losses of small models and a law that was fitted to them", about, lines, dots, "tokens", "nats per token",
                 [(d, f"{d / 1e6:.1f} M") for d in tokens], log=True)


def main():
    wrong = 0
    for name, text in (("raw-text.svg", raw_text()), ("scaling.svg", scaling())):
        file = FOLDER / name
        if text is None:
            print(f"{name}: there is no record yet", file=sys.stderr)
        elif "--check" not in sys.argv:
            file.write_text(text, encoding="utf-8")
        elif not file.exists() or file.read_text("utf-8") != text:
            print(f"book/figures/{name}:1: error: is not what the record says; run book/figures/curves.py")
            wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
