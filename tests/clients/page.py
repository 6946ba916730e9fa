"""Opens /docs in headless Chromium, tries an operation with a token and with the session of the console, and reads the responses."""

import json
import re
import shutil
import subprocess
import tempfile

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait
from server import ROOT, binary, running

BACKGROUND = "return getComputedStyle(document.querySelector('.swagger-ui')).backgroundColor"
TAG, OPERATION = "GroupsService", "GetGroup"

# Makes Chromium run without a display, network or user profile.
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1200,1600",
)


def installed() -> tuple[str, str]:
    """Returns the browser and its driver, and installs them if they are missing."""
    programs = ("chromium", "chromedriver")
    if not all(map(shutil.which, programs)):
        subprocess.run(["apt-get", "update", "-qq"], check=True)
        subprocess.run(["apt-get", "install", "-y", "-qq", "chromium", "chromium-driver"], check=True)
    return tuple(shutil.which(program) for program in programs)


def main() -> None:
    browser, driver = installed()
    with running() as server, tempfile.TemporaryDirectory() as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = browser
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        page = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
        try:
            check(page, server)
        finally:
            page.save_screenshot(str(ROOT / "target" / "docs.png"))
            page.quit()


def check(page: webdriver.Chrome, server) -> None:
    wait = WebDriverWait(page, 60)

    def find(selector: str):
        return wait.until(lambda page: next(iter(page.find_elements(By.CSS_SELECTOR, selector)), None))

    def click(selector: str) -> None:
        page.execute_script("arguments[0].click()", find(selector))

    def execute(uid: str) -> None:
        """Calls an operation on the page."""
        if not page.find_elements(By.ID, f"operations-{TAG}-{OPERATION}"):
            click(f"#operations-tag-{TAG}")
        block = f"#operations-{TAG}-{OPERATION}"
        click(f"{block} .opblock-summary-control")
        click(f"{block} .try-out__btn")
        field = find(f"{block} input[placeholder=uid]")
        field.send_keys(Keys.CONTROL, "a")
        # The page reads a field when it loses focus.
        field.send_keys(uid, Keys.TAB)
        click(f"{block} .execute")
        status = find(f"{block} .live-responses-table tbody .response-col_status").text.split()[0]
        body = json.loads(find(f"{block} .live-responses-table .highlight-code code, {block} .live-responses-table pre").text)
        assert status == "200", status
        assert body["uid"] == uid, body

    page.get(f"{server.url}/docs")
    find(".opblock-tag")
    assert "Platform API v2" in find(".info .title").text
    operations = page.find_elements(By.CSS_SELECTOR, ".opblock-tag")
    assert len(operations) > 5, operations
    links = {link.text: link.get_attribute("href") for link in page.find_elements(By.CSS_SELECTOR, "nav a")}
    assert links == {"OpenAPI document": f"{server.url}/openapi.json", "Console": f"{server.url}/console"}, links

    click(".btn.authorize")
    find(".auth-container input").send_keys(server.token)
    click(".auth-btn-wrapper .btn.authorize")
    click(".auth-btn-wrapper .btn-done")

    execute(server.organization)

    # The background is that of the theme which the browser prefers.
    for theme in ("dark", "light"):
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": theme}]})
        wait.until(lambda page: (page.execute_script(BACKGROUND) == "rgb(28, 32, 34)") == (theme == "dark"), theme)

    # Who is signed in to the console needs no token here.
    link = subprocess.run([binary(), "console", "--data-dir", server.data], stdout=subprocess.PIPE, text=True, check=True)
    page.get(re.search(r"https?://\S+", link.stdout)[0].replace("http://127.0.0.1:8080", server.url))
    find("nav a")
    page.get(f"{server.url}/docs")
    find(".opblock-tag")
    execute(server.organization)

    # The content security policy blocks nothing that the page needs, and the page sends requests only to this server.
    faults = [entry["message"] for entry in page.get_log("browser") if entry["level"] == "SEVERE"]
    assert not faults, faults
    events = (json.loads(entry["message"])["message"] for entry in page.get_log("performance"))
    urls = [one["params"]["request"]["url"] for one in events if one["method"] == "Network.requestWillBeSent"]
    # URLs that the browser handles itself cause no request.
    sent = [url for url in urls if not url.startswith(("chrome:", "data:"))]
    foreign = [url for url in sent if not url.startswith(f"{server.url}/")]
    assert not foreign, foreign
    print(f"/docs loads, {OPERATION} succeeds with a token and with a session, in both themes, and all {len(sent)} requests go to this server")


if __name__ == "__main__":
    main()
