"""`rose rl toy` and `rose rl inspect`, as a person uses them."""
import json
import os
import pathlib
import subprocess
import tempfile

ROSE = os.path.join(os.environ["ROSE_BIN"], "rose")


def rose(*arguments, status=0):
    result = subprocess.run([ROSE, "rl", *arguments], capture_output=True, text=True, timeout=120)
    assert result.returncode == status, (arguments, result.returncode, result.stderr)
    return result.stdout if status == 0 else result.stderr


def main():
    with tempfile.TemporaryDirectory() as folder:
        lines, binary = pathlib.Path(folder, "toy.jsonl"), pathlib.Path(folder, "toy.bin")
        shown = rose("toy", "--seeds", "2", "--record", str(lines))
        assert "2 of 2 seeds reached it" in shown and "1.0 |" in shown, shown
        rose("toy", "--record", str(binary))
        summary = rose("inspect", str(lines))
        assert summary == rose("inspect", str(binary))
        records = [json.loads(line) for line in lines.read_text().splitlines()]
        assert records[0] == {"format": "rose-trajectories", "version": 1}
        assert records[-1] == {"end": len(records) - 2}
        assert summary.startswith(f"{len(records) - 2} trajectories, "), summary
        # the same records, read by somebody else: masks, lengths and probabilities fit
        for record in records[1:-1]:
            for turn in record["turns"]:
                if turn["kind"] == "action":
                    for key in ("trained", "version", "raw", "behaviour", "support"):
                        assert len(turn[key]) == len(turn["tokens"]), (record["id"], key)
                    assert all(t in s for t, s in zip(turn["tokens"], turn["support"]))
                    assert all(r <= b for r, b in zip(turn["raw"], turn["behaviour"]))
        one = rose("inspect", str(binary), records[1]["id"])
        assert "of 2 allowed" in one and "observation" in one, one
        assert json.loads(rose("inspect", str(binary), records[1]["id"], "--json")) == records[1]

        half = pathlib.Path(folder, "half.jsonl")
        half.write_text(lines.read_text()[:5000])
        complaint = rose("inspect", str(half), status=4)
        assert "the line is cut short" in complaint and "--salvage" in complaint, complaint
        assert "trajectories" in rose("inspect", "--salvage", str(half))
        half.write_text("{}\n")
        assert "not a file of trajectories" in rose("inspect", str(half), status=4)
        assert "there is no trajectory" in rose("inspect", str(lines), "nobody", status=3)
        rose("inspect", str(pathlib.Path(folder, "none")), status=3)
        rose("toy", "--seeds", "0", status=2)
        assert "not every seed" in rose("toy", "--updates", "1", status=1)


if __name__ == "__main__":
    main()
