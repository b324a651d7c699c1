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
    def log_message(self, *_):
        pass


@contextlib.contextmanager
def served():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(SITE)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()


def chromium(scripts=True):
    options = Options()
    options.binary_location = shutil.which("chromium") or shutil.which("chromium-browser") or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--lang=en"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
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
    """The addresses that were asked for since the last call."""
    asked = []
    for entry in driver.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            asked.append(message["params"]["request"]["url"])
    return asked


def pages():
    """Every page but the views of whole files, of which there is one, and of the API the index and the two largest."""
    found = sorted(str(path.relative_to(SITE)) for path in SITE.rglob("*.html"))
    apart = ("code/", "source/", "api/", "pagefind/")
    api = sorted((path for path in found if path.startswith("api/rose/")), key=lambda path: -(SITE / path).stat().st_size)
    return [path for path in found if not path.startswith(apart)] + [path for path in found if path.startswith("code/rose/")][:1] + \
        [path for path in found if path == "api/index.html"] + api[:2]


def chapters():
    return [path for path in pages() if (SITE / path).with_suffix(".md").exists()]
