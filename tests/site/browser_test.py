#!/usr/bin/env python3
"""What only a browser can judge: errors, requests, overflow, accessibility, keyboard, search, what is remembered, pages
without scripts, and how fast and how still a page appears on a phone.

    browser_test.py [unittest arguments]      ROSE_SITE names another site than build/site
"""
import importlib.util
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
SKIP = None
try:
    import browser
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.ui import WebDriverWait
except ImportError as missing:
    SKIP = f"{missing.name} is not installed"
if SKIP is None and not (browser.SITE / "index.html").exists():
    SKIP = "there is no site: make site"

BENIGN = ("favicon.ico",)


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

    def test_every_page_is_quiet_and_fits_a_phone(self):
        for path in browser.pages():
            with self.subTest(page=path):
                self.driver.get_log("browser")
                browser.requests(self.driver)
                self.open(path, *browser.PHONE)
                severe = [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]
                self.assertEqual([message for message in severe if not any(word in message for word in BENIGN)], [])
                outside = [url for url in browser.requests(self.driver) if not url.startswith((self.base, "data:", "about:", "chrome"))]
                self.assertEqual(outside, [])
                width = self.driver.execute_script("return document.documentElement.scrollWidth")
                self.assertLessEqual(width, browser.PHONE[0], "the page is wider than a phone")

    def test_accessibility_in_both_themes(self):
        axe = axe_script()
        if axe is None:
            self.skipTest("axe-core is not installed")
        # Code, formulas and the entries of long lists look the same everywhere: they are looked at where a page is looked at
        # whole. Of the other chapters the rest is, and in the dark theme some pages stand for all.
        alike = "{exclude: [['.code'], ['.equation'], ['math'], ['.index > li:nth-child(n+8)'], ['.csl-entry:nth-child(n+8)'], ['.roadmap a:nth-child(n+9)'], ['.headers > :nth-child(n+9)'], ['.members > :nth-child(n+13)']]}"
        chapters = browser.chapters()
        others = [path for path in browser.pages() if path not in chapters]
        dark = {chapters[0], *chapters[1::9], *(path for path in others if not path.startswith("facts/"))}
        for path in others + chapters:
            for theme in ("light", "dark"):
                if theme == "dark" and path not in dark:
                    continue
                with self.subTest(page=path, theme=theme):
                    self.open(path, theme=theme)
                    self.driver.execute_script(axe)
                    context = "document" if path == chapters[0] else alike
                    options = {"resultTypes": ["violations"]}
                    if theme == "dark":  # the other rules do not depend on the theme
                        options["runOnly"] = {"type": "rule", "values": ["color-contrast"]}
                    found = self.driver.execute_async_script(
                        f"const done = arguments[1]; axe.run({context}, arguments[0]).then(done, e => done({{violations: [{{id: String(e), impact: 'critical', nodes: []}}]}}))", options)
                    serious = [f"{v['id']}: {v['nodes'][0]['html'][:160] if v['nodes'] else ''} ({len(v['nodes'])})"
                               for v in found["violations"] if v["impact"] in ("serious", "critical")]
                    self.assertEqual(serious, [])

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
        self.wait(lambda: self.driver.find_elements(By.CSS_SELECTOR, "#results a"), "search results")
        field.send_keys(Keys.ARROW_DOWN)
        self.assertEqual(self.driver.switch_to.active_element.tag_name, "a")
        self.driver.switch_to.active_element.send_keys(Keys.ENTER)
        self.wait(lambda: "index.html" not in self.driver.current_url, "a result opens")

    def test_search_finds_known_terms(self):
        self.open("index.html")
        for words, expected in (("byte-pair encoding", "tokeni"), ("online softmax", "softmax"), ("Philox", "philox"), ("GGUF", "gguf")):
            with self.subTest(words=words):
                field = self.find("#q")
                field.clear()
                field.send_keys(words)
                self.wait(lambda: expected in self.find("#results").text.lower(), f"'{words}' finds nothing about '{expected}'")

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
