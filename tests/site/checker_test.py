#!/usr/bin/env python3
"""The checker of the site finds what is wrong with a page."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

CHECKER = pathlib.Path(__file__).resolve().parent.parent.parent / "scripts" / "check_site.py"
PAGE = "<!doctype html><html><head><title>x</title></head><body><h1>x</h1>{}</body></html>"


def check(body, other="<p id='there'>x</p>", api=None):
    with tempfile.TemporaryDirectory() as folder:
        site = pathlib.Path(folder)
        (site / "assets").mkdir()
        for name in ("style.css", "site.js"):
            (site / "assets" / name).write_text("/* */")
        (site / "index.html").write_text(PAGE.format(body))
        (site / "other.html").write_text(PAGE.format(other))
        (site / "other.md").write_text("x")
        (site / "other.html").write_text(PAGE.format(other).replace("<h1>", "<h1 data-pagefind-body>"))
        if api is not None:
            (site / "api").mkdir()
            (site / "api" / "a.h.html").write_text(PAGE.format(api[0]))
            (site / "api" / "rosellm.tag").write_text(api[1])
        done = subprocess.run([sys.executable, CHECKER, folder], capture_output=True, text=True)
        return done.returncode, done.stdout


class Checker(unittest.TestCase):
    def test_a_right_page(self):
        code, said = check('<p><a href="other.html#there">x</a> and <code>\\frac</code></p>')
        self.assertEqual(code, 0, said)

    def test_what_is_wrong(self):
        for body, expected in (
            ('<a href="gone.html">x</a>', "leads nowhere"),
            ('<a href="other.html#gone">x</a>', "no such fragment"),
            ('<p id="a">x</p><p id="a">y</p>', "exists twice"),
            ("<img src='assets/style.css'>", "without alternative text"),
            ("<p>by \\frac{1}{2}</p>", "TeX"),
            ("<p>see [@dao2022]</p>", "a citation"),
            ("<p>[2](fact:x)</p>", "the book's grammar"),
            ("<script src='https://cdn.example.org/x.js'></script>", "another place"),
            ("<p><em>x</p>", "is open"),
            ("<h1>again</h1>", "one <h1>"),
        ):
            with self.subTest(body=body):
                code, said = check(body)
                self.assertEqual(code, 1, said)
                self.assertIn(expected, said)

    def test_the_api(self):
        for page, tags, expected in (
            ("<p id='f'><a href='../other.html'>x</a></p>", "<filename>a.h.html</filename><anchorfile>a.h.html</anchorfile><anchor>f</anchor>", None),
            ("<p id='f'>x</p>", "<filename>a.h.html</filename>", "no link to the chapter"),
            ("<p id='f'><a href='../other.html'>x</a></p>", "<anchorfile>a.h.html</anchorfile><anchor>g</anchor>", "a.h.html#g"),
        ):
            with self.subTest(page=page, tags=tags):
                code, said = check("<p>x</p>", api=(page, tags))
                self.assertEqual(code, 0 if expected is None else 1, said)
                self.assertIn(expected or "", said)


if __name__ == "__main__":
    unittest.main()
