"""A browser's tab that reports every error of its page."""

import re
from typing import TYPE_CHECKING, Any

import pytest
from console_browser import PATIENCE_MS, ConsoleProcess

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


class Tab:
    """A page, and every error that it reported."""

    def __init__(self, browser: "Browser", console: ConsoleProcess, **options: Any) -> None:
        self.browser = browser
        self.context = browser.new_context(**options)
        self.context.set_default_timeout(PATIENCE_MS)
        self.page: Page = self.context.new_page()
        self.errors: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", self._said)
        self.page.on("dialog", lambda dialog: self.errors.append(f"dialog {dialog.message}"))
        self._url = console.url

    def _said(self, message: Any) -> None:
        # A page can't prevent the browser's own messages when it reconnects, and when the brokers
        # respond too late: the timeline and the session are read again.
        passing = "net::ERR_" in message.text or "status of 503" in message.text
        if message.type == "error" and not passing:
            self.errors.append(message.text)

    def open(self, path: str) -> "Page":
        self.page.goto(self._url + path)
        self.page.wait_for_selector("h1")
        return self.page

    def expect(self, selector: str, text: str | re.Pattern[str]) -> None:
        sync_api.expect(self.page.locator(selector).first).to_contain_text(
            text, timeout=PATIENCE_MS
        )
