"""A headless Chromium on the rendered site, which it serves on a port of its own."""
import contextlib
import functools
import http.server
import json
import os
import pathlib
import shutil
import threading

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SITE = pathlib.Path(os.environ.get("ROSE_SITE", ROOT / "build" / "site"))
PHONE = (360, 800)


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Files of the site, and answers to POST where the test has some: path to a function of the request's JSON."""

    def __init__(self, *args, answers, **given):
        self.answers = answers
        super().__init__(*args, **given)

    def log_message(self, *_):
        pass

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path not in self.answers:
            return self.send_error(404)
        body = json.dumps(self.answers[self.path](asked)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextlib.contextmanager
def served(answers=()):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(SITE), answers=dict(answers)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()


def chromium(scripts=True):
    options = Options()
    options.binary_location = shutil.which("chromium") or shutil.which("chromium-browser") or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--lang=en"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    if not scripts:
        options.add_experimental_option("prefs", {"profile.managed_default_content_settings.javascript": 2})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    driver.set_page_load_timeout(60)
    driver.set_script_timeout(120)
    return driver


def resize(driver, width, height):
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600})


def theme(driver, name):
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": name}]})


def requests(driver):
    """The addresses that the page has asked for."""
    return driver.execute_script("return performance.getEntriesByType('resource').map((entry) => entry.name)")


def pages():
    """Every page but the views of whole files, of which there is one, and of the API the index and the two largest."""
    found = sorted(str(path.relative_to(SITE)) for path in SITE.rglob("*.html"))
    apart = ("code/", "source/", "api/", "pagefind/")
    api = sorted((path for path in found if path.startswith("api/rose/")), key=lambda path: -(SITE / path).stat().st_size)
    return [path for path in found if not path.startswith(apart)] + [path for path in found if path.startswith("code/rose/")][:1] + \
        [path for path in found if path == "api/index.html"] + api[:2]


def chapters():
    return [path for path in pages() if (SITE / path).with_suffix(".md").exists()]
