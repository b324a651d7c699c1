#!/usr/bin/env python3
"""The figures of the engine in a browser: alive under `rose serve` with the embedded model, and clear about it where nobody serves them.

    live_test.py [unittest arguments]      ROSE_SITE names another site than build/site; SHOTS a folder for pictures
"""
import math
import os
import pathlib
import sys
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "serve")]
SKIP = None
try:
    import browser
    import browser_test
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.ui import Select, WebDriverWait
except ImportError as missing:
    SKIP = f"{missing.name} is not installed"
if SKIP is None and not (browser.SITE / "index.html").exists():
    SKIP = "there is no site: make site"

TALK = "0-orientation/01-what-this-book-is.html"
SAMPLING = "5-inference/02-sampling.html"
POOL = "5-inference/03-the-kv-pool.html"


class Page:
    """One browser, and what is looked for on a page."""

    def __init__(self):
        self.driver = browser.chromium()

    def open(self, address, width=1280, height=1000, theme="light"):
        browser.resize(self.driver, width, height)
        browser.theme(self.driver, theme)
        self.driver.get(address)

    def figure(self, kind):
        found = self.driver.find_element(By.CSS_SELECTOR, f"rose-figure[kind={kind}]")
        self.driver.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", found)
        return found

    def all(self, kind, selector):
        return self.figure(kind).find_elements(By.CSS_SELECTOR, selector)

    def texts(self, kind, selector):
        """At one moment: what is shown may be replaced while it is read."""
        return self.driver.execute_script("return [...document.querySelectorAll(`rose-figure[kind=${arguments[0]}] ${arguments[1]}`)].map((node) => node.textContent)", kind, selector)

    def count(self, kind, selector):
        return len(self.texts(kind, selector))

    def shows(self, kind):
        return self.figure(kind).get_attribute("data-shows")

    def said(self, kind):
        return self.figure(kind).find_element(By.CSS_SELECTOR, ".shown").text

    def press(self, kind, words):
        next(node for node in self.all(kind, "button") if node.text == words).click()

    def slide(self, what, value):
        self.driver.execute_script("""const input = document.querySelector(`rose-figure [data-what=${arguments[0]}]`);
            input.value = arguments[1]; input.dispatchEvent(new Event('input', { bubbles: true }));""", what, value)

    def wait(self, condition, message, seconds=60):
        WebDriverWait(self.driver, seconds, 0.05).until(lambda _: condition(), message)

    def shot(self, name, kind):
        if folder := os.environ.get("SHOTS"):
            self.figure(kind)
            self.driver.save_screenshot(f"{folder}/{name}.png")


@unittest.skipIf(SKIP, SKIP)
class Live(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        from server import Server
        cls.server = Server("--site", browser.SITE, parrot=False, wait=False)
        cls.base = f"http://127.0.0.1:{cls.server.port}/"
        cls.page = Page()
        cls.server.wait_until_healthy(120)

    @classmethod
    def tearDownClass(cls):
        cls.page.driver.quit()
        cls.server.stop()

    def distribution(self, prompt, **given):
        _, answer = self.server.post("/v1/completions", {"prompt": prompt, "max_tokens": 1, "logprobs": 20, **given}, timeout=120)
        return {token: math.exp(l) if l > -9999 else 0.0 for token, l in answer["choices"][0]["logprobs"]["top_logprobs"][0].items()}

    def columns(self):
        cells = self.page.texts("sampling", ".next tbody :is(th, td)")
        number = lambda text: float(text.removesuffix(" %")) / 100
        return {token.replace("·", " "): (number(said), number(left)) for token, said, left in zip(*[iter(cells)] * 3)}

    def test_sampling_shows_what_the_engine_says_and_keeps(self):
        page = self.page
        page.open(self.base + SAMPLING)
        self.assertEqual(page.shows("sampling"), "recorded")
        text = page.figure("sampling").find_element(By.TAG_NAME, "textarea")
        prompt = "The rose is a flower that"
        text.clear()
        text.send_keys(prompt)
        page.wait(lambda: page.shows("sampling") == "live" and len(self.columns()) == 12, "the engine's distribution")
        raw = self.distribution(prompt, temperature=0)
        seen = set()
        for settings in ({}, {"temperature": 0.5}, {"temperature": 1.5, "top_k": 5}, {"temperature": 1.5, "top_k": -1, "top_p": 0.5}, {"top_p": 1, "min_p": 0.2}):
            with self.subTest(settings=settings):
                for what, value in settings.items():
                    page.slide(what, max(value, 0))
                asked = {"temperature": 1, "top_k": -1, "top_p": 1, "min_p": 0}
                for key in asked:
                    shown = float(page.figure("sampling").find_element(By.CSS_SELECTOR, f"[data-what={key}]").get_attribute("value"))
                    asked[key] = int(shown) or -1 if key == "top_k" else shown
                left = self.distribution(prompt, **asked, processed_logprobs=True)

                def same():
                    shown = self.columns()
                    return len(shown) == 12 and all(abs(shown[token][0] - raw[token]) < 0.006 and abs(shown[token][1] - left.get(token, 0)) < 0.006 for token in shown)

                page.wait(same, f"{asked}: {self.columns()} {left}", 20)
                seen.add(tuple(sorted(left.items())))
        self.assertEqual(len(seen), 5, "each setting makes another distribution")
        self.assertRegex(page.texts("sampling", ".sum")[0], r"^\d+ tokens? can be drawn; this time it was “.+”\.$")
        page.shot("sampling-light", "sampling")

    def test_a_talk_streams_and_can_be_stopped(self):
        page = self.page
        page.open(self.base + TALK)
        self.assertEqual((page.shows("chat"), page.shows("pool")), ("recorded", "recorded"))
        words = page.figure("chat").find_element(By.TAG_NAME, "textarea")
        page.slide("temperature", 0)
        words.clear()
        words.send_keys("What is the capital of France?", Keys.ENTER)
        page.wait(lambda: page.shows("chat") == "live" and "to the end" in page.texts("chat", ".sum")[0], "an answer")
        _, answer = self.server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "What is the capital of France?"}], "temperature": 0, "max_tokens": 400}, timeout=120)
        self.assertEqual(page.texts("chat", ".talk .assistant p"), [answer["choices"][0]["message"]["content"]], "the stream adds up to the whole")
        self.assertIn(f'{answer["usage"]["completion_tokens"]} written', page.texts("chat", ".sum")[0])
        words.send_keys("Tell me a very long story about a rose garden, with many chapters.")
        page.press("chat", "Send")
        page.wait(lambda: len(page.texts("chat", ".talk .assistant p")[-1]) > 40, "it has begun")
        grown = page.texts("chat", ".talk .assistant p")[-1]
        page.wait(lambda: len(page.texts("chat", ".talk .assistant p")[-1]) > len(grown), "and goes on, a piece at a time")
        page.wait(lambda: page.shows("pool") == "live", "the pool is watched")
        page.shot("talk-light", "chat")
        page.press("chat", "Stop")
        page.wait(lambda: "stopped by you" in page.texts("chat", ".sum")[0], "it says who stopped")
        time.sleep(0.6)
        self.idle()
        self.assertEqual(self.server.metric("rose_requests_running"), 0, "the engine has stopped, too")
        stopped = page.texts("chat", ".talk .assistant p")[-1]
        time.sleep(0.5)
        self.assertEqual(page.texts("chat", ".talk .assistant p")[-1], stopped)
        words.send_keys("Thank you.", Keys.ENTER)
        page.wait(lambda: len(page.texts("chat", ".talk .assistant p")) == 3 and page.texts("chat", "button:not([disabled])")[0] == "Send", "the conversation goes on")
        page.press("chat", "New conversation")
        self.assertEqual(page.texts("chat", ".talk p"), [])

    def idle(self):
        end = time.monotonic() + 60
        while (self.server.metric("rose_requests_running") or self.server.metric("rose_requests_waiting")) and time.monotonic() < end:
            time.sleep(0.1)

    def test_blocks_move_and_are_shared(self):
        page = self.page
        page.open("about:blank")  # what other tests have asked ends with their page
        time.sleep(0.6)
        self.idle()
        page.open(self.base + POOL)
        page.press("pool", "Ask four questions")
        page.wait(lambda: page.shows("pool") == "live", "the engine is watched")
        page.wait(lambda: page.count("pool", ".batch tr[data-request]") == 4, "four requests")
        self.assertRegex(page.texts("pool", ".sum")[0], r"^\d running, \d waiting; \d+ of \d+ pages of 16 tokens")
        before = page.count("pool", ".batch .pages i")
        page.wait(lambda: page.count("pool", ".batch .pages i") > before, "they take pages as they go on")
        page.wait(lambda: page.count("pool", ".batch tr[data-request] i.shared") >= 8, "and share those of the beginning")
        page.shot("pool-light", "pool")
        page.wait(lambda: not page.count("pool", ".batch tr[data-request]"), "and it ends", 120)
        self.assertTrue(page.count("pool", ".map i.cached"), "what was read stays known")
        page.press("pool", "Stop watching")
        self.assertIn("when you stopped", page.said("pool"))

    def test_accessible_and_within_a_phone_while_alive(self):
        page, axe = self.page, browser_test.axe_script()
        for path, kinds in ((SAMPLING, ["sampling"]), (TALK, ["chat", "pool"])):
            page.open(self.base + path, *browser.PHONE)
            if kinds == ["sampling"]:
                page.press("sampling", "Draw again")
            else:
                words = page.figure("chat").find_element(By.TAG_NAME, "textarea")
                words.clear()
                words.send_keys("Hello!", Keys.ENTER)
                page.press("pool", "Ask four questions")
            for kind in reversed(kinds):
                page.wait(lambda: page.shows(kind) == "live", f"{kind} is alive")
            self.assertLessEqual(page.driver.execute_script("return document.documentElement.scrollWidth"), browser.PHONE[0])
            for kind in kinds:
                page.shot(f"{kind}-phone", kind)
            browser.resize(page.driver, 1280, 1000)
            if axe is None:
                continue
            page.driver.execute_script(axe)
            for theme in ("light", "dark"):
                browser.theme(page.driver, theme)
                found = page.driver.execute_async_script(
                    "const done = arguments[0]; axe.run('rose-figure', {resultTypes: ['violations'], preload: false}).then(done)")
                self.assertEqual([f"{v['id']}: {v['nodes'][0]['html'][:160]}" for v in found["violations"]], [], (path, theme))
                for kind in kinds:
                    page.shot(f"{kind}-{theme}-alive", kind)

    def test_the_home_page_leads_to_the_model(self):
        page = self.page
        page.open(self.base)
        page.driver.find_element(By.CSS_SELECTOR, ".doors a[href$='#talk-to-it']").click()
        page.wait(lambda: page.driver.current_url.endswith(TALK + "#talk-to-it"), "the door opens")
        self.assertEqual([url for url in browser.requests(page.driver) if "/v1/" in url or "/debug/" in url], [], "nobody is asked before the reader does something")


@unittest.skipIf(SKIP, SKIP)
class Alone(unittest.TestCase):
    """On a plain file server the figures show what was recorded, and say why when they are asked for more."""

    def test_recorded_and_clear_about_it(self):
        page = Page()
        try:
            with browser.served() as base:
                page.open(base + TALK)
                recorded = page.texts("chat", ".talk p")
                self.assertEqual(len(recorded), 4)
                self.assertEqual(page.count("pool", ".batch tr[data-request]"), 4)
                page.shot("talk-recorded", "chat")
                words = page.figure("chat").find_element(By.TAG_NAME, "textarea")
                words.clear()
                words.send_keys("Is anybody there?", Keys.ENTER)
                page.wait(lambda: "No engine serves this page" in page.said("chat"), "it says so")
                self.assertEqual(page.texts("chat", ".talk p"), recorded)
                self.assertEqual(words.get_attribute("value"), "Is anybody there?", "nothing that was typed is lost")
                for button in ("Watch the engine", "Ask four questions"):
                    page.press("pool", button)
                    page.wait(lambda: "No engine serves this page" in page.said("pool"), "it says so")
                    page.wait(lambda: page.count("pool", ".batch tr[data-request]") == 4, "and shows the recorded moment")
                page.open(base + SAMPLING)
                Select(page.all("sampling", "select")[0]).select_by_visible_text("Arithmetic, top-k 5")
                left = page.texts("sampling", ".next td:nth-child(3)")
                self.assertEqual(sum(value != "0 %" for value in left), 5)
                page.slide("temperature", 0.3)
                page.wait(lambda: "No engine serves this page" in page.said("sampling"), "it says so")
                self.assertEqual(page.shows("sampling"), "recorded")
                Select(page.all("sampling", "select")[0]).select_by_index(0)
                self.assertEqual(page.count("sampling", ".next tbody tr"), 12)
        finally:
            page.driver.quit()


if __name__ == "__main__":
    unittest.main(verbosity=2)
