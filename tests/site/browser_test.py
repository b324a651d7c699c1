#!/usr/bin/env python3
"""What only a browser can judge: errors, requests, overflow, accessibility, keyboard, search, what is remembered, pages
without scripts, and how fast and how still a page appears on a phone.

    browser_test.py [unittest arguments]      ROSE_SITE names another site than build/site
"""
import importlib.util
import json
import pathlib
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent / "book" / "figures")]
SKIP = None
try:
    import browser
    import roofline
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.ui import Select, WebDriverWait
except ImportError as missing:
    SKIP = f"{missing.name} is not installed"
if SKIP is None and not (browser.SITE / "index.html").exists():
    SKIP = "there is no site: make site"

BENIGN = ("favicon.ico",)

# Leaves two of whatever is alike on a page: elements with the same tag, class and attributes, with children of the same kinds,
# below the same ancestors. What axe-core says of the first is what it would say of the hundredth, minutes later.
PRUNE = """
    const known = new Map(), seen = new Map(), tags = new Set(['A', 'B', 'CODE', 'DIV', 'FIGURE', 'I', 'LI', 'math', 'P', 'SMALL', 'SPAN', 'TR']);
    const number = (words) => { if (!known.has(words)) known.set(words, known.size); return known.get(words); };
    const own = (e) => e.tagName + '.' + e.getAttribute('class') + '.' + e.getAttribute('role') + '.' + e.getAttributeNames().sort();
    const shapes = new Map();
    const shape = (e) => { 
        const inside = e.tagName === 'math' ? [] : [...new Set([...e.children].map(shape))].sort(), found = number(own(e) + '(' + inside + ')');
        shapes.set(e, found);
        return found;
    };
    const visit = (e, path) => {
        for (const child of [...e.children]) {
            const here = number(path + '/' + own(child)), key = here + ':' + shapes.get(child), count = (seen.get(key) || 0) + 1;
            seen.set(key, count);
            if (count > 2 && tags.has(child.tagName)) child.remove();
            else if (!/^(LABEL|math)$/.test(child.tagName)) visit(child, here);  // a label's words name its box
        }
    };
    shape(document.body);
    visit(document.body, 0);
    return document.querySelectorAll('*').length;"""


def axe_script():
    found = importlib.util.find_spec("axe_playwright_python")
    if found is None:
        return None
    for path in pathlib.Path(found.origin).parent.rglob("axe.min.js"):
        return path.read_text(encoding="utf-8")
    return None


@unittest.skipIf(SKIP, SKIP)
class Site(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.exits = []
        server = browser.served()
        cls.base = server.__enter__()
        cls.exits.append(lambda: server.__exit__(None, None, None))
        cls.driver = browser.chromium()
        cls.exits.append(cls.driver.quit)

    @classmethod
    def tearDownClass(cls):
        for leave in reversed(cls.exits):
            leave()

    def open(self, path, width=1440, height=900, theme="light"):
        browser.resize(self.driver, width, height)
        browser.theme(self.driver, theme)
        self.driver.get(self.base + path)

    def find(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def wait(self, condition, message):
        WebDriverWait(self.driver, 20).until(lambda _: condition(), message)

    def audit(self, rules=None):
        """What axe-core finds serious on the page as it stands."""
        options = {"resultTypes": ["violations"], "preload": False, **({"runOnly": {"type": "rule", "values": rules}} if rules else {})}
        found = self.driver.execute_async_script(
            "const done = arguments[1]; axe.run(document, arguments[0]).then(done, (e) => done({violations: [{id: String(e), impact: 'critical', nodes: []}]}))", options)
        return [f"{v['id']}: {v['nodes'][0]['html'][:160] if v['nodes'] else ''} ({len(v['nodes'])})"
                for v in found["violations"] if v["impact"] in ("serious", "critical")]

    def test_every_page(self):
        """Each is quiet, asks nobody else, fits a phone, and is accessible in both themes."""
        axe = axe_script()
        for path in browser.pages():
            with self.subTest(page=path):
                self.driver.get_log("browser")
                self.open(path, *browser.PHONE)
                severe = [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]
                self.assertEqual([message for message in severe if not any(word in message for word in BENIGN)], [])
                self.assertEqual([url for url in browser.requests(self.driver) if not url.startswith((self.base, "data:"))], [])
                width = self.driver.execute_script("return document.documentElement.scrollWidth")
                self.assertLessEqual(width, browser.PHONE[0], "the page is wider than a phone")
                if axe is None:
                    continue
                if path != browser.chapters()[0]:  # that one is looked at whole
                    self.driver.execute_script(PRUNE)
                browser.resize(self.driver, 1440, 900)
                self.driver.execute_script(axe)
                self.assertEqual(self.audit(), [], "light")
                browser.theme(self.driver, "dark")
                self.assertEqual(self.audit(["color-contrast", "link-in-text-block"]), [], "dark")  # no other rule sees a colour

    def test_keyboard_reaches_text_search_and_results(self):
        self.open("index.html")
        body = self.find("body")
        body.send_keys(Keys.TAB)
        self.assertEqual(self.driver.switch_to.active_element.get_attribute("class"), "skip")
        self.driver.switch_to.active_element.send_keys(Keys.ENTER)
        self.wait(lambda: self.driver.current_url.endswith("#main"), "the skip link leads to the text")
        self.find("body").send_keys("/")
        field = self.driver.switch_to.active_element
        self.assertEqual(field.get_attribute("id"), "q")
        field.send_keys("attention")
        self.wait(lambda: self.driver.find_elements(By.CSS_SELECTOR, "#search-results a"), "search results")
        field.send_keys(Keys.ARROW_DOWN)
        self.assertEqual(self.driver.switch_to.active_element.tag_name, "a")
        self.driver.switch_to.active_element.send_keys(Keys.ENTER)
        self.wait(lambda: "index.html" not in self.driver.current_url, "a result opens")

    def test_tokenizer_shows_what_was_recorded_and_then_what_the_engine_says(self):
        asked = []

        def tokenize(request):
            asked.append(request)
            data = request["prompt"].encode()
            return {"tokens": list(data), "token_strs": ["Ġ" if byte == 32 else chr(byte) for byte in data]}

        path = "1-foundations/05-tokenization.html"
        for answers in ({}, {"/tokenize": tokenize}):
            with browser.served(answers) as base:
                self.driver.get(base + path)
                figure, state = self.find("rose-figure"), lambda: self.find("rose-figure").get_attribute("data-shows")
                self.assertEqual(state(), "recorded")
                recorded = json.loads(self.driver.execute_script("return document.querySelector('rose-figure script').textContent"))["samples"]
                ids = lambda: [int(node.text) for node in self.driver.find_elements(By.CSS_SELECTOR, ".tokens li > small:nth-child(2)")]
                self.assertEqual(ids(), [token for token, _ in recorded[0][1]])
                choice = figure.find_element(By.TAG_NAME, "select")
                choice.send_keys(recorded[-1][2])  # by its name, from the keyboard
                self.assertEqual(ids(), [token for token, _ in recorded[-1][1]])
                self.assertEqual(asked, [], "nobody is asked before the reader types")
                text = figure.find_element(By.TAG_NAME, "textarea")
                text.clear()
                text.send_keys("A b")
                if answers:
                    self.wait(lambda: state() == "live" and ids() == [65, 32, 98], "the engine's tokens")
                    self.assertEqual(asked[-1], {"prompt": "A b", "add_special_tokens": False, "return_token_strs": True})
                    self.assertEqual([node.text for node in self.driver.find_elements(By.CSS_SELECTOR, ".tokens li > span")], ["A", "·", "b"])
                else:
                    self.wait(lambda: "No engine" in self.find(".shown").text, "it says that there is no engine")
                    self.assertEqual((state(), ids()), ("recorded", []))

    def test_roofline_counts_as_the_book_does(self):
        self.open("4-kernels/01-the-gpu-and-the-roofline.html")
        shown = lambda key: self.find(f"[data-value={key}]").text
        machine = json.loads(self.driver.execute_script("return document.querySelector('rose-figure script').textContent"))["machines"][0]
        self.assertEqual((shown("flops"), shown("bytes"), shown("intensity"), shown("bound")), ("33.6 Mflop", "33.6 MB", "1 flop/B", "6.99 µs"))  # by hand
        values = browser.ROOT / "build" / "values" / "gpu-costs-test.json"
        tested = json.loads(values.read_text()) if values.exists() else {}
        for name, count, sizes in (("linear", roofline.linear, {"M": 256, "N": 4096, "K": 4096}), ("norm", roofline.norm, {"R": 4096, "C": 4096}),
                                   ("prefill", roofline.prefill, {"T": 4096, "H": 32, "G": 8, "D": 128}),
                                   ("decode", roofline.decode, {"B": 64, "T": 4096, "H": 32, "G": 8, "D": 128})):
            for width, number in ((2, "bf16"), (4, "fp32")):
                with self.subTest(operation=name, number=number):
                    Select(self.find("[data-what=operation]")).select_by_value(name)
                    Select(self.find("[data-what=number]")).select_by_value(str(width))
                    for key, value in sizes.items():
                        field = self.find(f"[data-size={key}]")
                        field.clear()
                        field.send_keys(str(value))
                    flops, bytes_ = count(*sizes.values(), width)
                    seconds = max(flops / machine[number] / 1e12, bytes_ / machine["bandwidth"] / 1e12)
                    self.assertEqual((shown("flops"), shown("bytes")), (roofline.size(flops) + "flop", roofline.size(bytes_) + "B"))
                    unit = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3}[shown("bound").split()[1]]
                    self.assertAlmostEqual(float(shown("bound").split()[0]) * unit / seconds, 1, delta=0.006)
                    if width == 2 and tested:  # the C++ of the chapter
                        self.assertEqual((flops, bytes_), (tested[f"{name}_flops"], tested[f"{name}_bytes"]))
        self.find("[data-size=B]").clear()
        self.assertIn("at least 1", self.find(".shown").text)

    def test_live_figures_can_be_driven_from_the_keyboard(self):
        self.open("4-kernels/01-the-gpu-and-the-roofline.html")
        self.find("[data-what=operation]").send_keys(Keys.TAB)
        self.assertEqual(self.driver.switch_to.active_element.get_attribute("data-what"), "number")
        self.driver.switch_to.active_element.send_keys(Keys.TAB, Keys.ARROW_DOWN)
        self.find("[data-what=machine]").send_keys("NVIDIA A")
        self.assertIn("A100", Select(self.find("[data-what=machine]")).first_selected_option.text)
        self.assertIn("a100", self.find(".shown").text)
        rows = self.find("[data-size=M]")
        rows.send_keys(Keys.ARROW_UP)
        self.assertEqual(rows.get_attribute("value"), "2")

    def test_search_finds_known_terms(self):
        self.open("index.html")
        for words, expected in (("byte-pair encoding", "tokeni"), ("online softmax", "softmax"), ("Philox", "philox"), ("GGUF", "gguf")):
            with self.subTest(words=words):
                field = self.find("#q")
                field.clear()
                field.send_keys(words)
                self.wait(lambda: expected in self.find("#search-results").text.lower(), f"'{words}' finds nothing about '{expected}'")

    def test_theme_persists(self):
        self.open("index.html", theme="light")
        dark = lambda: self.driver.execute_script("return getComputedStyle(document.documentElement).colorScheme")
        self.assertEqual(dark(), "light")
        self.find(".theme").click()
        self.assertEqual(dark(), "dark")
        self.open(browser.chapters()[0], theme="light")
        self.assertEqual(dark(), "dark")
        self.find(".theme").click()
        self.assertEqual(dark(), "light")
        self.driver.execute_script("localStorage.clear()")

    def test_ticks_persist(self):
        path = next(p for p in browser.chapters() if "data-tick" in (browser.SITE / p).read_text(encoding="utf-8"))
        self.open(path)
        for tick in self.driver.find_elements(By.CSS_SELECTOR, "[data-tick]"):
            self.driver.execute_script("arguments[0].click()", tick)
        self.open(path)
        self.assertTrue(self.find("[data-tick]").is_selected())
        self.open("roadmap.html")
        self.assertTrue(self.driver.find_elements(By.CSS_SELECTOR, ".node.done"), "the roadmap shows what is done")
        self.driver.execute_script("localStorage.clear()")

    def test_references_in_code_unfold_and_copy(self):
        path = next(p for p in browser.chapters() if 'class="ref"' in (browser.SITE / p).read_text(encoding="utf-8"))
        self.open(path)
        fold = self.find(".ref details")
        self.assertIsNone(fold.get_attribute("open"))
        summary = fold.find_element(By.TAG_NAME, "summary")
        self.driver.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", summary)
        summary.click()
        self.assertIsNotNone(fold.get_attribute("open"))
        self.assertTrue(fold.find_element(By.TAG_NAME, "pre").is_displayed())
        self.assertTrue(self.driver.find_elements(By.CSS_SELECTOR, ".chunk .copy"))

    def test_notes_of_the_margin_unfold_on_a_phone(self):
        path = next((p for p in browser.chapters() if 'class="tip"' in (browser.SITE / p).read_text(encoding="utf-8")), None)
        if path is None:
            self.skipTest("no chapter has a claim")
        self.open(path, *browser.PHONE)
        note = self.find(".tip .side")
        self.assertFalse(note.is_displayed())
        self.driver.execute_script("arguments[0].click()", self.find(".tip label"))
        self.assertTrue(note.is_displayed())
        self.open(path, 1440, 900)
        self.assertTrue(self.find(".tip .side").is_displayed())

    def test_complete_without_scripts(self):
        driver = browser.chromium(scripts=False)
        try:
            for path in ("index.html", browser.chapters()[0], "roadmap.html"):
                driver.get(self.base + path)
                self.assertTrue(driver.find_element(By.TAG_NAME, "h1").is_displayed())
                self.assertFalse(driver.find_element(By.CSS_SELECTOR, ".theme").is_displayed(), "a button that cannot work")
                self.assertFalse(driver.find_element(By.CSS_SELECTOR, "#q").is_displayed(), "a search that cannot work")
            driver.get(self.base + "1-foundations/05-tokenization.html")
            self.assertTrue(driver.find_element(By.CSS_SELECTOR, "rose-figure table").is_displayed(), "the recorded state")
            self.assertIn("Recorded on", driver.find_element(By.CSS_SELECTOR, "rose-figure").text)
            driver.get(self.base + browser.chapters()[0])
            self.assertGreater(len(driver.find_element(By.TAG_NAME, "article").text), 3000)
            browser.resize(driver, *browser.PHONE)
            self.assertFalse(driver.find_element(By.CSS_SELECTOR, ".tree").is_displayed())
            driver.find_element(By.CSS_SELECTOR, "label.menu").click()
            self.assertTrue(driver.find_element(By.CSS_SELECTOR, ".tree").is_displayed(), "the menu opens without a script")
        finally:
            driver.quit()

    def test_appears_soon_and_stays_still_on_a_phone(self):
        driver = browser.chromium()
        try:
            browser.resize(driver, *browser.PHONE)
            driver.execute_cdp_cmd("Network.enable", {})
            driver.execute_cdp_cmd("Network.emulateNetworkConditions", {"offline": False, "latency": 40, "downloadThroughput": 1_250_000, "uploadThroughput": 600_000})
            driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": """
                window.seen = {cls: 0, lcp: 0};
                new PerformanceObserver(list => { for (const e of list.getEntries()) if (!e.hadRecentInput) seen.cls += e.value; }).observe({type: 'layout-shift', buffered: true});
                new PerformanceObserver(list => { for (const e of list.getEntries()) seen.lcp = e.startTime; }).observe({type: 'largest-contentful-paint', buffered: true});"""})
            worst = {"cls": 0.0, "lcp": 0.0}
            for path in ["index.html", *browser.chapters()[::6]]:
                driver.get(self.base + path)
                driver.execute_async_script("document.fonts.ready.then(() => setTimeout(arguments[0], 300))")
                seen = driver.execute_script("return seen")
                for key in worst:
                    worst[key] = max(worst[key], seen[key])
                with self.subTest(page=path):
                    self.assertLessEqual(seen["cls"], 0.02, "the page moves while it loads")
                    self.assertLessEqual(seen["lcp"], 4000, "a busy machine may be slow; this is not that")
            print(f"phone: largest contentful paint {worst['lcp']:.0f} ms, layout shift {worst['cls']:.4f} (worst of the pages looked at)")
        finally:
            driver.quit()


if __name__ == "__main__":
    unittest.main(verbosity=2)
