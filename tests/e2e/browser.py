"""A real browser for tests of the dashboard: headless Chromium, driven by selenium.

One rule: what it logged as an error, a refused script included, is told; what it started ends with it.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.common.exceptions import (
    ElementClickInterceptedException,
    ElementNotInteractableException,
    NoSuchElementException,
    StaleElementReferenceException,
)
from selenium.webdriver.chrome.service import Service as Driver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from tests.testbed.processes import free_port
from tests.testbed.waiting import wait_until

PROGRAMS = ("chromium", "chromedriver")
DEADLINE_S = 120.0
PHONE, DESK = (360, 740), (1280, 900)


class Browser:
    """`url` is the service's."""

    def __init__(self, driver: webdriver.Chrome, url: str) -> None:
        self.driver, self.url = driver, url

    def open(self, path: str = "/") -> None:
        self.driver.get(self.url + path)

    def find(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector: str) -> WebElement:
        """As soon as it can be seen."""
        return self.until(lambda: next((each for each in self.find(selector) if each.is_displayed()), None), f"{selector} to be seen")

    def click(self, selector: str) -> None:
        """Again where it was drawn anew, or moved below something else, between the look and the click."""

        def clicked() -> bool:
            with contextlib.suppress(ElementClickInterceptedException, ElementNotInteractableException):
                self.one(selector).click()
                return True
            return False

        self.until(clicked, f"{selector} to be clicked")

    def text(self, selector: str) -> str:
        return str(self.until(lambda: (self.one(selector).text,), f"the text of {selector}")[0])

    def until(self, condition: Callable[[], Any], what: str, deadline_s: float = DEADLINE_S) -> Any:
        """A page that is just being drawn anew is asked again."""

        def look() -> Any:
            try:
                return condition()
            except (StaleElementReferenceException, NoSuchElementException):
                return None

        try:
            return wait_until(look, what, deadline_s)
        except AssertionError as problem:
            raise AssertionError(f"{problem}\n{self.run('return document.body.innerText')[:3000]}\n{self.errors()}") from None

    def shows(self, text: str, selector: str = "body", deadline_s: float = DEADLINE_S) -> None:
        self.until(lambda: any(text in each.text for each in self.find(selector)), f"{selector} to show {text!r}", deadline_s)

    def run(self, script: str, *words: Any) -> Any:
        return self.driver.execute_script(script, *words)

    def settle(self, script: str, *words: Any) -> Any:
        """A script whose last argument is called with its answer."""
        return self.driver.execute_async_script(script, *words)

    def press(self, *keys: str) -> None:
        webdriver.ActionChains(self.driver).send_keys(*keys).perform()

    def focused(self) -> str:
        return str(self.run("const e = document.activeElement; return e.id || e.textContent.trim().slice(0, 60)"))

    def sign_in(self, token: str, path: str = "/") -> None:
        self.open(path)
        self.one("#token").send_keys(token, Keys.ENTER)
        self.one("#views")

    def go(self, hash_: str) -> None:
        self.run("location.hash = arguments[0]", hash_)

    def resize(self, size: tuple[int, int]) -> None:
        """Of what is shown, whatever the window takes for its frame."""
        metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size == PHONE}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def prefer(self, **features: str) -> None:
        """As a person's system says: prefers_color_scheme, prefers_reduced_motion."""
        told = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": told})

    def overflow(self) -> int:
        """By how many pixels the page is wider than what is shown."""
        return int(self.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth"))

    def picture(self, path: Path) -> None:
        """Of the whole page."""
        self.driver.save_screenshot(str(path))

    def errors(self) -> list[str]:
        """What the console was told, without answers that the page itself shows to the person."""
        found = [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]
        return [text for text in found if "Failed to load resource" not in text]


@contextmanager
def browser(url: str, profile: Path) -> Iterator[Browser]:
    """Skips, and says so, where there is none."""
    program, driver = (shutil.which(name) for name in PROGRAMS)
    if program is None or driver is None:
        pytest.skip("no chromium or chromedriver (scripts/setup.sh test, as root, installs them)")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    words = ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--no-first-run", f"--user-data-dir={profile}")
    for word in (*words, "--disable-background-networking", "--disable-component-update", "--window-size=1280,900"):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    started = webdriver.Chrome(options=options, service=Driver(executable_path=driver, port=free_port()))
    started.set_script_timeout(DEADLINE_S)
    try:
        yield Browser(started, url)
    finally:
        started.quit()
