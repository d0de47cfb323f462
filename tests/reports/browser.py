"""A headless Chromium that opens pages from files: the one installed, driven by selenium."""

import base64
import json
import os
import shutil

import pytest

_OPTIONS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
_OFFLINE = {"offline": True, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
_A4 = {"paperWidth": 8.27, "paperHeight": 11.69}  # inches


class Browser:
    """One window, in which pages are opened one after another."""

    def __init__(self, driver):
        self._driver = driver
        self._command("Network.enable")
        self._command("Network.emulateNetworkConditions", **_OFFLINE)

    def open(self, path, *, width=1280, height=900, dark=False, media=""):
        """Load a page afresh; problems and requests are counted from here.

        ``media="print"`` shows on the screen what would be printed.
        """
        self._command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        self._command("Emulation.setEmulatedMedia", media=media, features=[scheme, still])
        self._driver.get("about:blank")
        for log in ("browser", "performance"):
            self._driver.get_log(log)  # of the page before
        self._driver.get(path.resolve(strict=True).as_uri())

    def ask(self, script, *arguments):
        """What a piece of JavaScript returns, run by the driver: a page's own policy aside."""
        return self._driver.execute_script(script, *arguments)

    def press(self, *keys):
        """Press keys, by selenium's names such as "TAB"."""
        from selenium.webdriver import ActionChains, Keys

        ActionChains(self._driver).send_keys(*(getattr(Keys, key) for key in keys)).perform()

    @property
    def title(self):
        return self._driver.title

    def problems(self):
        """All that the page has written to the console, or the browser about the page."""
        return [entry["message"] for entry in self._driver.get_log("browser")]

    def requests(self):
        """The addresses of all that the page has asked for, itself included."""
        messages = (
            json.loads(entry["message"])["message"] for entry in self._driver.get_log("performance")
        )
        return [
            message["params"]["request"]["url"]
            for message in messages
            if message["method"] == "Network.requestWillBeSent"
        ]

    def screenshot(self, path):
        """Write a picture of the whole page, from its top to its end."""
        size = self._command("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = self._command("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(shot["data"]))

    def pdf(self):
        """The page as printed on A4, a PDF as bytes."""
        return base64.b64decode(self._command("Page.printToPDF", **_A4)["data"])

    def _command(self, name, **parameters):
        return self._driver.execute_cdp_cmd(name, parameters)


def start_browser(folder):
    """Start a driver and its browser, which keep their files in a folder; yields a `Browser`.

    Skips the test where selenium, Chromium or its driver is missing: nothing is downloaded.
    """
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium")
    programs = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
    for name, found in programs.items():
        if found is None:
            pytest.skip(f"needs {name} (Debian: apt-get install chromium chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = programs["chromium"]
    for option in (*_OPTIONS, f"--user-data-dir={folder / 'profile'}"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    homes = {"XDG_CONFIG_HOME": str(folder / "config"), "XDG_CACHE_HOME": str(folder / "cache")}
    service = webdriver.ChromeService(programs["chromedriver"], env=os.environ | homes)
    driver = webdriver.Chrome(options, service)
    try:
        yield Browser(driver)
    finally:
        driver.quit()
