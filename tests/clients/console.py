"""Opens the console in headless Chromium: sign-in, each screen, errors, the keyboard alone, axe-core, and many repos.

`PLATFORM_CONSOLE_REPOS` is the number of repos (default 100,000; .ci/long has 1,000,000), `PLATFORM_CONSOLE_SHOTS` a folder for screenshots of
every audited screen. With `PLATFORM_CONSOLE_ONLY=repos`, only the pages of many repos are timed:

    cargo build --release -p server -p platformctl
    PLATFORM_SERVER=target/release/platform-server PLATFORM_CONSOLE_ONLY=repos PLATFORM_CONSOLE_REPOS=1000000 \\
        tests/clients/run.py console

The repos come from a file that is made from an export, with the bulk load of `import store`.
"""

import contextlib
import json
import os
import pathlib
import pty
import re
import subprocess
import tempfile
import time
import types
import urllib.error
import urllib.parse
import urllib.request

import own_kind
import screenshots
from console_browser import Browser, Sink, axe, browser, many, serving, sink
from console_jobs import jobs
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from server import Server, binary, built
from signin import free_port, pass_provider, provider

REPOS = int(os.environ.get("PLATFORM_CONSOLE_REPOS", "100000"))

EVIL = "<img src=x onerror=\"document.title='evil'\"><script>document.title='evil'</script>"


def sign_in(at: Browser) -> None:
    server = at.server
    at.page.get(f"{server.url}/")
    assert "Console" in at.text("main") and "Documentation" in at.text("main")
    at.audit("landing")
    at.page.get(f"{server.url}/console")
    at.shows("Sign in", "h1")
    at.audit("sign-in")
    at.fill("input[type=password]", "wrong")
    at.keys(Keys.ENTER)
    at.shows("Not authenticated", "[role=alert]")
    at.fill("input[type=password]", server.token)
    at.keys(Keys.ENTER)
    at.settled("Hierarchy")
    # A reload keeps the user signed in, by the cookie that scripts cannot read.
    at.page.refresh()
    at.settled("Hierarchy")
    assert at.page.execute_script("return document.cookie") == ""
    assert at.page.execute_script("return Object.keys(localStorage).concat(Object.keys(sessionStorage)).join()") == ""
    at.press("Sign out", ".top")
    at.shows("Sign in", "h1")
    at.page.refresh()
    at.shows("Sign in", "h1")
    link = subprocess.run(
        [binary(), "console", "--data-dir", str(server.data), "--api", server.url], stdout=subprocess.PIPE, text=True, check=True
    ).stdout.strip()
    # The tab that shows the sign-in page takes the link.
    at.page.get(link)
    at.settled("Hierarchy")
    assert "link=" not in at.page.current_url
    at.press("Sign out", ".top")
    at.shows("Sign in", "h1")
    at.fill("input[type=password]", link)
    at.keys(Keys.ENTER)
    at.shows("already opened", "[role=alert]")
    at.fill("input[type=password]", server.token)
    at.keys(Keys.ENTER)
    at.settled("Hierarchy")


def change(at: Browser) -> str:
    """Creates, changes and deletes a repo. Returns the uid of another one, which stays."""
    org = at.server.organization
    at.go("/repos", "Repos")
    at.go(f"/repos/new?parent={org}", "New repo")
    at.fill("[data-path=name]", "Not Allowed!")
    at.press("Create")
    at.shows("must", ".problem")
    assert at.page.execute_script("return document.activeElement.dataset.path") == "name"
    at.audit("form-error")
    at.fill("[data-path=name]", "console")
    at.fill("[data-path=description]", EVIL)
    at.fill("[data-path=bundles]", "base\nfips")
    at.press("Create")
    at.settled("console")
    assert EVIL in at.text(".head"), at.text(".head")
    at.press("Edit", ".head")
    at.settled("Edit console")
    at.fill("[data-path=description]", "Shown in the console")
    at.shows("updateMask=description", ".curl")
    at.press("Save changes")
    at.settled("console")
    at.shows("Shown in the console", ".head")
    uid = at.page.execute_script("return new URLSearchParams(location.hash.split('?')[1]).get('uid')")
    stored = at.server.call("GET", f"/registry/v2/repos/{uid.replace('/', '%2F')}")
    assert stored["bundles"] == ["base", "fips"] and stored["description"] == "Shown in the console", stored

    # Somebody else changes the same field meanwhile: both values are shown, and the person decides.
    at.press("Edit", ".head")
    at.settled("Edit console")
    at.fill("[data-path=description]", "Mine")
    at.server.call("PATCH", f"/registry/v2/repos/{uid.replace('/', '%2F')}", {"description": "Theirs"})
    at.press("Save changes")
    at.shows("Somebody else has changed this repo", "[role=alert]")
    assert {"Theirs", "Mine"} <= set(at.text("[role=alert]").split()), at.text("[role=alert]")
    at.audit("form-conflict")
    # Neither the button nor Enter saves again: the other value would be lost without a choice.
    assert not at.find("form .buttons .primary").is_enabled()
    at.find("[data-path=name]").send_keys(Keys.ENTER)
    at.shows("Nothing is saved until you choose", "[role=alert]")
    assert at.server.call("GET", f"/registry/v2/repos/{uid.replace('/', '%2F')}")["description"] == "Theirs"
    at.press("Overwrite with mine")
    at.settled("console")
    at.shows("Mine", ".head")

    # An organization that contains resources is not deleted, and the dialog says why.
    name = at.server.call("GET", f"/iam/v2/groups/{org}")["name"]
    at.go(f"/groups/item?uid={org}", name)
    at.press("More", ".head")
    at.shows("Set resource limit", ".menu")
    at.audit("menu")
    at.keys(Keys.ESCAPE)
    at.press("Delete", ".head")
    at.shows("In the way are:", "dialog")
    assert not at.find("dialog button.danger").is_enabled()
    at.audit("delete-blocked")
    at.press("Cancel", "dialog")
    at.go(f"/repos/new?parent={org}", "New repo")
    at.fill("[data-path=name]", "short-lived")
    at.press("Create")
    at.settled("short-lived")
    at.press("Delete", ".head")
    at.press("Delete", "dialog")
    at.wait.until(lambda page: "/item" not in page.execute_script("return location.hash") or org in page.execute_script("return location.hash") and "groups" in page.execute_script("return location.hash"))
    at.go("/repos?f.name=short-lived", "Repos")
    at.shows("No repos match")
    return uid


def repo_screens(at: Browser, uid: str) -> None:
    server, quoted = at.server, uid.replace("/", "%2F")
    readme = f"# Console\n\nA *repo* with a [link](https://example.com) and [more](javascript:alert(1)).\n\n| a | b |\n|---|---|\n| 1 | `2` |\n"
    with contextlib.suppress(urllib.error.HTTPError):
        server.call("PATCH", f"/registry/v2/repos/{quoted}/readme", {"content": readme})
    safe = readme.replace(" and [more](javascript:alert(1))", "")
    server.call("PATCH", f"/registry/v2/repos/{quoted}/readme", {"content": safe})
    digest = f"sha256:{'a' * 64}"
    platforms = [
        {"architecture": name, "digest": f"sha256:{letter * 64}", "size": str(size)}
        for name, letter, size in (("amd64", "b", 48_400_000), ("arm64", "c", 44_100_000), ("riscv64", "d", 40_900_000))
    ]
    image = {"digest": digest, "index": True, "platforms": platforms}
    request = urllib.request.Request(
        f"{server.url}/import/images?parent={quoted}", data=json.dumps(image).encode() + b"\n", method="POST",
        headers={"Authorization": f"Bearer {server.token}"},
    )
    urllib.request.urlopen(request, timeout=60).read()
    tag = server.call("POST", f"/registry/v2/tags/{quoted}", {"name": "latest", "digest": digest})["uid"]
    for minor in range(3):
        server.call("POST", f"/registry/v2/tags/{quoted}", {"name": f"1.{minor}", "digest": digest})
    at.go(f"/repos/item?uid={quoted}", "console")
    at.shows("A repo with a link", ".markdown")
    assert at.find(".markdown a").get_attribute("href") == "https://example.com/"
    at.shows("1.2", "main")
    at.audit("repo")
    at.go(f"/tags/item?uid={tag.replace('/', '%2F')}", "latest")
    at.shows("riscv64", ".bars")
    assert "46.2 MiB" in at.text(".bars"), at.text(".bars")
    at.audit("tag")
    # Markdown from elsewhere is shown safely, too: nothing of it becomes markup that runs.
    steps = at.page.execute_async_script(
        """const done = arguments[1];
        import("/console/api.js").then(({ markdown }) => markdown(arguments[0])).then(done, (e) => done(String(e)));""",
        f"{EVIL}\n\n[a](javascript:alert(1))\n",
    )
    assert "javascript" not in json.dumps(steps) and "onerror" not in json.dumps(steps), steps
    assert at.page.title != "evil"


def pictures(at: Browser) -> None:
    """Groups and repos have pictures, each with a table of the same numbers."""
    uids = screenshots.filled(at.server)
    column = "return [...document.querySelector('figure').querySelectorAll('tbody tr:last-child td')].map((one) => Number(one.textContent))"
    at.go(f"/groups/item?uid={uids['web']}", "web")
    at.shows("Advisories, last 30 days", "main")
    at.wait.until(lambda page: page.find_elements(By.CSS_SELECTOR, "svg.chart rect"))
    shown = at.page.execute_script(column)
    path = f"/insights/v1/advisoryTrends?uid={uids['web']}&days=1"
    today = at.server.call("GET", path)["days"][0]
    assert shown == [today[name] for name in ("open", "notPlanned", "notAffected", "fixed")] and sum(shown) == 60, (shown, today)
    # The same advisories by severity, in the chosen state.
    severities = "return [...document.querySelectorAll('figure')[1].querySelectorAll('tbody tr:last-child td')].map((one) => Number(one.textContent))"
    names = ("critical", "high", "medium", "low", "unrated")
    shown = at.page.execute_script(severities)
    assert shown == [today[name] for name in names] and sum(shown) == today["open"] and all(shown), (shown, today)
    at.audit("group")
    at.page.execute_script("const one = document.querySelector('figure + .field select'); one.value = 'fixed'; one.dispatchEvent(new Event('change'))")
    fixed = at.server.call("GET", f"{path}&state=FIXED")["days"][0]
    at.wait.until(lambda page: page.execute_script(severities) == [fixed[name] for name in names], "not the severities of the chosen state")
    assert sum(fixed[name] for name in names) == fixed["fixed"] > 0, fixed
    name = at.server.call("GET", f"/iam/v2/groups/{uids['org']}")["name"]
    at.go(f"/groups/item?uid={uids['org']}", name)
    at.wait.until(lambda page: page.find_elements(By.CSS_SELECTOR, "svg.chart rect"))
    at.go(f"/repos/item?uid={uids['repo'].replace('/', '%2F')}", "nginx")
    # Vulnerabilities by severity, and those that were resolved.
    at.wait.until(lambda page: len(page.find_elements(By.CSS_SELECTOR, "svg.chart")) == 2, "not two pictures")
    assert sum(at.page.execute_script(column)) == 4, at.page.execute_script(column)
    at.audit("repo-pictures")
    # A filter that is used is in sight, also if there are many.
    at.go(f"/advisories?under={uids['web']}&f.aliases=CVE-2026-1037", "Advisories")
    at.shows("CGA-0037", "main tbody th")
    assert at.text(".total") == "1" and at.find("[name='f.aliases']").is_displayed()
    at.audit("advisories")
    at.press("CGA-0037", "tbody")
    at.settled("CGA-0037")
    at.shows("Detection", "dl")
    at.audit("advisory")


def iam_screens(at: Browser) -> None:
    server, org = at.server, at.server.organization
    viewer = next(one["uid"] for one in server.call("GET", "/iam/v2/roles?name=viewer")["roles"])
    group = server.call("POST", f"/iam/v2/groups/{org}", {"name": "team"})["uid"]
    issuer = {"issuer": "https://issuer.example.com", "subject": "repo:example/app"}
    identity = server.call("POST", f"/iam/v2/identities/{org}", {"name": "ci", "claimMatch": issuer})["uid"]
    at.go(f"/roleBindings/new?parent={group}", "New role binding")
    # A uid can be written as a name, which is offered as a path of names.
    at.fill("[data-path=identityUid]", "ci")
    at.wait.until(lambda page: page.execute_script("return [...document.querySelectorAll('datalist option')].some((one) => one.value.endsWith('/ci'))"))
    at.fill("[data-path=roleUid]", viewer)
    at.audit("form")
    at.press("Create")
    at.settled("ci")
    at.audit("role-binding")
    at.go(f"/access?uid={group}&identityUid={identity}&capability=repo.list", "Access")
    at.shows("Allowed")
    at.shows("viewer", "table")
    at.audit("access")
    at.fill("[name=capability]", "repo.delete")
    at.press("Explain")
    at.shows("Not allowed")
    at.fill("[name=capability]", "nosuch")
    at.press("Explain")
    at.shows("unknown capability", "[role=alert]")
    at.go(f"/identities/item?uid={identity}", "ci")
    at.shows("Role bindings by identity")
    at.audit("identity")
    at.go(f"/roles/new?parent={org}", "New role")
    at.fill("[data-path=name]", "reader")
    at.fill("[data-path=capabilities]", "repo.list")
    at.click("[data-capabilities] label:not([hidden]) input")
    at.press("Create")
    at.settled("reader")
    at.shows("CAP_REPO_LIST")
    at.audit("role")
    at.go(f"/groupInvites/new?parent={group}", "New group invite")
    at.fill("[data-path=roleUid]", viewer)
    at.fill("[data-path=ttl]", "3600s")
    at.press("Create")
    at.shows("Shown only now")
    at.audit("invite")
    at.go(f"/identityProviders/new?parent={org}", "New identity provider")
    at.fill("[data-path=name]", "sign-in")
    at.fill("[data-path=defaultRole]", viewer)
    at.fill("[data-path='oidc.issuer']", "https://issuer.example.com")
    at.fill("[data-path='oidc.clientId']", "console")
    at.fill("[data-path='oidc.clientSecret']", "secret")
    at.press("Create")
    at.settled("sign-in")
    at.shows("https://issuer.example.com")
    at.audit("provider")
    at.go(f"/groups/edit?uid={group}", "Edit team")
    at.audit("form-edit")


def status_of(server: Server, subscription: str) -> dict:
    """Returns the delivery status of a subscription; an empty one before the first attempt, when there is none."""
    try:
        return server.call("GET", f"/events/v2/deliveryStatuses/{subscription}")
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise
        return {}


def event_screens(at: Browser) -> None:
    server, org = at.server, at.server.organization
    with sink(410) as url:
        at.go(f"/subscriptions/new?parent={org}", "New subscription")
        at.fill("[data-path=sink]", url)
        at.press("Create")
        at.settled("127.0.0.1")
        uid = at.page.execute_script("return new URLSearchParams(location.hash.split('?')[1]).get('uid')")
        server.call("POST", f"/registry/v2/repos/{org}", {"name": "event"})
        quoted = uid.replace("/", "%2F")
        at.wait.until(lambda _: status_of(server, quoted).get("mode") == "PAUSED")
        at.go("/subscriptions", "Subscriptions")
        at.go(f"/subscriptions/item?uid={quoted}", "127.0.0.1")
        at.shows("Paused")
        at.shows("Retrying")
        at.audit("subscription")
        Sink.status = 204
        at.press("Resume delivery")
        at.press("Resume delivery", "dialog")
        at.wait.until(lambda _: Sink.delivered)
        server.call("DELETE", f"/events/v2/subscriptions/{quoted}")


def dead_letters(at: Browser) -> None:
    """A sink rejects an event until it is a dead letter; mended, it gets the event by a click."""
    server, org = at.server, at.server.organization
    with sink(422) as url:
        uid = server.call("POST", f"/events/v2/subscriptions/{org}", {"sink": url})["uid"].replace("/", "%2F")
        server.call("POST", f"/registry/v2/repos/{org}", {"name": "rejected"})
        dead = f"/events/v2/deadLetters?uidp.children_of={uid}"
        at.wait.until(lambda _: server.call("GET", dead)["totalCount"] == "1", "no dead letter")
        at.go(f"/deadLetters?under={uid}", "Dead letters")
        row = at.text("main tbody tr")
        assert "Rejected" in row and "422" in row and "repo.created" in row, row
        at.audit("dead-letters")
        at.click("main tbody th a")
        at.settled("repo.created")
        at.shows("Redeliver", ".head")
        at.audit("dead-letter")
        at.go(f"/subscriptions/item?uid={uid}", "127.0.0.1")
        at.shows("Dead letters")
        at.shows("Redeliver", "main")
        assert "1 dead" in at.text(".legend") and at.find("svg.chart rect.c-dead")
        # The log of deliveries names the same event.
        at.go(f"/deliveries?under={uid}&f.state=DEAD", "Deliveries")
        at.shows("Dead", "main tbody")
        at.audit("deliveries")
        event = server.call("GET", dead)["deadLetters"][0]["eventId"]
        Sink.status, Sink.delivered = 204, []
        at.go(f"/deadLetters?under={uid}", "Dead letters")
        at.press("Redeliver", "main table")
        at.shows("Redeliver for this dead letter?", "dialog")
        at.press("Redeliver", "dialog")
        at.wait.until(lambda _: Sink.delivered == [event], f"{event} was not delivered: {Sink.delivered}")
        # The list is read again: the event is not dead any more.
        at.shows("No dead letters", "main")
        at.go(f"/deliveries?under={uid}&f.eventId={event}&f.state=DELIVERED", "Deliveries")
        at.wait.until(lambda _: server.call("GET", f"/events/v2/deliveries?eventId={event}&state=DELIVERED")["totalCount"] == "1")
        at.page.refresh()
        at.shows("Delivered", "main tbody")
        redelivered_from_the_command_line(at, dead)
        server.call("DELETE", f"/events/v2/subscriptions/{uid}")


def redelivered_from_the_command_line(at: Browser, dead: str) -> None:
    """The commands of docs/quick-start.md find a dead letter and deliver it again."""
    server = at.server
    Sink.status, Sink.delivered = 422, []
    server.call("POST", f"/registry/v2/repos/{server.organization}", {"name": "rejected too"})
    at.wait.until(lambda _: server.call("GET", dead)["totalCount"] == "1", "no dead letter")
    event = server.call("GET", dead)["deadLetters"][0]["eventId"]
    uid = platformctl(server, "get", "dead-letters", "-o", "name").strip()
    Sink.status = 204
    platformctl(server, "run", "dead-letters", "redeliver-dead-letter", "--uid", uid)
    at.wait.until(lambda _: event in Sink.delivered, f"{event} was not delivered: {Sink.delivered}")
    assert platformctl(server, "get", "dead-letters", "-o", "name") == ""
    # A test event, what happened to it, and the same event again by its id.
    subscription = uid.rsplit("/", 1)[0]
    Sink.status, Sink.delivered = 422, []
    sent = json.loads(platformctl(server, "run", "subscriptions", "send-test-event", "--uid", subscription))["eventId"]
    at.wait.until(lambda _: server.call("GET", dead)["totalCount"] == "1", "no dead letter")
    row = platformctl(server, "get", "deliveries", "--event-id", sent, "-o", "name").strip()
    shown = json.loads(platformctl(server, "get", "deliveries", row, "-o", "json"))
    assert shown["request"]["headers"]["ce-id"] == sent and shown["request"]["headers"]["authorization"] == "(removed)", shown
    assert shown["response"]["body"] == "answered with 422" and shown["response"]["headers"]["set-cookie"] == "(removed)", shown
    Sink.status = 204
    platformctl(server, "run", "subscriptions", "redeliver-event", "--uid", subscription, "--event-id", sent)
    at.wait.until(lambda _: Sink.delivered == [sent], f"{sent} was not delivered: {Sink.delivered}")


def platformctl(server: Server, *words: str) -> str:
    """Runs a command of `platformctl` and returns its output."""
    command = [built("platformctl"), *words, "--api", server.url, "--token", server.token]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def every_list(at: Browser) -> None:
    """Opens and audits the list of every kind."""
    links = at.page.execute_script("return [...document.querySelectorAll('.side a')].map((one) => one.getAttribute('href')).filter((one) => one.startsWith('#'))")
    assert len(links) > 15, links
    for index, link in enumerate(links):
        at.page.execute_script("location.hash = arguments[0]", link)
        at.wait.until(lambda page: page.execute_script("return !document.querySelector('.busy') && document.querySelector(`.side a[href='${arguments[0]}']`)?.getAttribute('aria-current') === 'page'", link))
        assert "did not work" not in at.text("main"), at.text("main")
        # Each in one theme: what they share is audited in both.
        at.audit(f"list-{link.strip('#/').split('?')[0]}", ("light", "dark")[index % 2 :][:1])


def every_form(at: Browser) -> None:
    """Opens and audits the form that creates a resource of each kind."""
    with urllib.request.urlopen(f"{at.server.url}/console/document.json", timeout=30) as reply:
        kinds = [kind for kind in json.load(reply)["kinds"] if kind["methods"].get("create")]
    assert len(kinds) > 8, kinds
    for index, kind in enumerate(kinds):
        noun = re.sub("([a-z0-9])([A-Z])", r"\1 \2", kind["name"]).lower()
        at.go(f"/{kind['plural']}/new", f"New {noun}")
        at.audit(f"form-{kind['plural']}", ("light", "dark")[index % 2 :][:1])


def by_keyboard(at: Browser) -> None:
    """Finds and opens a repo with the keyboard alone."""
    at.page.get(f"{at.server.url}/console#/hierarchy")
    at.page.refresh()
    at.settled("Hierarchy")
    at.keys(Keys.TAB)
    for _ in range(60):
        if at.page.execute_script("return document.activeElement.getAttribute('role')") == "treeitem":
            break
        at.keys(Keys.TAB)
    at.keys(Keys.HOME)
    name = at.row()
    at.keys(Keys.ENTER)
    at.wait.until(lambda page: page.execute_script("return document.activeElement.getAttribute('aria-expanded') === 'true' && Boolean(document.activeElement.nextElementSibling?.querySelector('[role=treeitem]'))"))
    at.keys(Keys.ARROW_DOWN)
    assert at.row() != name
    at.keys(Keys.ENTER)
    at.wait.until(lambda page: page.execute_script("return document.activeElement.getAttribute('aria-selected')") == "true")
    at.keys(Keys.ARROW_LEFT, Keys.ARROW_LEFT)
    assert at.row() == name
    at.audit("hierarchy")
    at.go("/repos?f.name=console", "Repos")
    at.shows("console", "main table")
    for _ in range(80):
        if at.page.execute_script("return document.activeElement.closest('tbody th') !== null"):
            break
        at.keys(Keys.TAB)
    at.keys(Keys.ENTER)
    at.settled("console")
    assert at.page.execute_script("return document.activeElement.tagName") == "H1"


def changed_by_keyboard(at: Browser) -> None:
    """Creates, edits and deletes a repo with the keyboard alone."""
    at.go("/repos", "Repos")
    at.tab_to("New repo")
    at.keys(Keys.ENTER)
    at.settled("New repo")
    at.tab_to("[data-path=parent]")
    at.keys(at.server.organization)
    at.tab_to("[data-path=name]")
    at.keys("Typed!", Keys.ENTER)
    # The focus is on the field with the error.
    at.shows("must", ".problem")
    assert at.page.execute_script("return document.activeElement.dataset.path") == "name"
    at.keys(Keys.BACKSPACE * len("Typed!"), "typed", Keys.ENTER)
    at.settled("typed")
    at.tab_to("Edit")
    at.keys(Keys.ENTER)
    at.settled("Edit typed")
    at.tab_to("[data-path=description]")
    at.keys("Typed on a keyboard", Keys.ENTER)
    at.settled("typed")
    at.shows("Typed on a keyboard", ".head")
    at.tab_to("Delete")
    at.keys(Keys.ENTER)
    at.shows("cannot be undone", "dialog")
    # Escape closes the dialog, and the focus returns to the button.
    at.keys(Keys.ESCAPE)
    at.wait.until(lambda page: not page.find_elements(By.CSS_SELECTOR, "dialog"))
    assert at.row() == "Delete", at.row()
    at.keys(Keys.ENTER)
    at.shows("cannot be undone", "dialog")
    at.tab_to("Delete", 5)
    at.keys(Keys.ENTER)
    at.wait.until(lambda page: "/repos/item" not in page.execute_script("return location.hash"))
    at.go("/repos?f.name=typed", "Repos")
    at.shows("No repos match")


def percentiles(values) -> tuple[float, float]:
    """Returns the median and the 95th percentile."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2], ordered[len(ordered) * 95 // 100]


def many_repos(source: str, data: pathlib.Path) -> None:
    store = many(data, REPOS)
    with serving(data, store) as server, browser(server, source) as at:
        at.page.get(f"{server.url}/console")
        at.fill("input[type=password]", server.token)
        at.keys(Keys.ENTER)
        at.settled("Hierarchy")
        at.go("/repos?order=name", "Repos")
        assert at.text(".total").replace(",", "") == str(REPOS), at.text(".total")
        at.audit("repos")
        # From the click to the rows of the page, which the browser has laid out.
        script = """
            const [name, done] = arguments;
            performance.clearResourceTimings();
            const began = performance.now();
            const before = document.querySelector(".results tbody");
            const input = document.querySelector(".pager input");
            if (typeof name === "number") { input.value = name; input.dispatchEvent(new Event("change")); }
            else document.querySelector(`[data-go=${name}]`).click();
            const look = () => {
                const rows = document.querySelector(".results tbody");
                // Requests of the page before may end now, and the timing of a request can come after its reply.
                const sent = performance.getEntriesByType("resource").filter((one) => one.startTime >= began);
                if (rows && rows !== before && !document.querySelector(".busy") && sent.length) {
                    rows.getBoundingClientRect();
                    const total = performance.now() - began;
                    done([total, sent.length, Math.max(...sent.map((one) => one.responseEnd)) - began]);
                }
                else requestAnimationFrame(look);
            };
            look();"""
        times = []
        last = -(-REPOS // 50)
        for turn in range(15):
            for step in ("next", 1 + turn * last // 15 + 1, "next", "previous"):
                times.append(at.page.execute_async_script(script, step))
        at.page.execute_async_script(script, "last")
        shown = at.text("main tbody tr:last-child th")
        assert shown == f"repo-{REPOS - 1:07}", shown
        assert all(sent == 1 for _, sent, _ in times), "a page of a list is one request"
        p50, p95 = percentiles(total for total, _, _ in times)
        answered = percentiles(answer for _, _, answer in times)
        print(
            f"{REPOS:,} repos: from click to rendered page {p50:.0f} ms (median), {p95:.0f} ms (p95 of {len(times)});"
            f" to the server's answer {answered[0]:.0f} and {answered[1]:.0f} ms"
        )
        at.go(f"/repos?f.name=repo-{REPOS // 2:07}", "Repos")
        assert at.text(".total") == "1"
        at.check_faults()
        from_the_command_line(server)


def from_the_command_line(server: Server) -> None:
    """`platformctl` reads the last of many repos, and all of them."""

    def listed(*options: str) -> tuple[list[str], float]:
        began = time.monotonic()
        command = [built("platformctl"), "get", "repos", "--order-by", "name", "-o", "jsonpath=$.name", *options]
        done = subprocess.run([*command, "--api", server.url, "--token", server.token], stdout=subprocess.PIPE, text=True, check=True)
        return done.stdout.splitlines(), time.monotonic() - began

    last, seconds = listed("--skip", str(REPOS - 1))
    assert last == [f"repo-{REPOS - 1:07}"], last
    command = [built("platformctl"), "find", last[0], "--api", server.url, "--token", server.token]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=True)
    assert f"many/{last[0]}" in done.stdout and f"of {REPOS} repos" not in done.stderr, done
    every, seconds_of_all = listed("--all")
    assert every == [f"repo-{index:07}" for index in range(REPOS)], (len(every), every[:3])
    # On a terminal, a bar shows the progress; the output is a pipe.
    ours, theirs = pty.openpty()
    command = [built("platformctl"), "get", "repos", "--all", "-o", "name", "--api", server.url, "--token", server.token]
    # Wide enough for the bar.
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs, env=environment) as process:
        os.close(theirs)
        drawn = everything(ours)
    assert process.returncode == 0 and f"/{REPOS}" in drawn, drawn[-300:]
    print(f"platformctl: the last repo in {seconds * 1000:.0f} ms, all {REPOS:,} in {seconds_of_all:.1f} s")


def everything(terminal: int) -> str:
    """Reads what a program writes to a terminal until it ends."""
    parts = []
    # At the end, Linux reports an error instead of an empty read.
    with contextlib.suppress(OSError):
        while part := os.read(terminal, 65536):
            parts.append(part)
    os.close(terminal)
    return b"".join(parts).decode(errors="replace")


def by_provider(source: str) -> None:
    """A person signs in with an identity provider, in the window that the console opens."""
    port = free_port()
    issuer = f"http://127.0.0.1:{port}"
    options = ["--sign-in-issuer", issuer, "--sign-in-client-id", "console", "--allow-http-issuers", "--allow-private-issuers"]
    with tempfile.TemporaryDirectory() as folder, serving(pathlib.Path(folder), "memory", *options) as server:
        client = {"client_id": "console", "token_endpoint_auth_method": "none", "redirect_uris": [f"{server.url}/oauth/callback"]}
        with provider(port, [client]), browser(server, source) as at:
            at.page.get(f"{server.url}/console")
            at.shows("Sign in with an identity provider")
            at.audit("sign-in-provider")
            first = at.page.current_window_handle
            # A real click: browsers open windows for nothing else.
            at.find(".door .card button.primary").click()
            fingerprint = at.find(".fingerprint").text
            at.audit("sign-in-waiting")
            at.wait.until(lambda page: len(page.window_handles) == 2, "no window was opened")
            at.page.switch_to.window(next(one for one in at.page.window_handles if one != first))
            confirmation = pass_provider(at, "ann")
            assert fingerprint in confirmation and "console" in confirmation, (fingerprint, confirmation)
            at.find("button[value=allow]").click()
            at.wait.until(lambda page: page.find_elements(By.XPATH, "//main[contains(., 'Signed in')]"))
            at.page.close()
            at.page.switch_to.window(first)
            at.settled("Hierarchy")
            at.shows("ann", ".top .place")
            at.shows("no groups that you can see")
            at.page.refresh()
            at.settled("Hierarchy")
            at.shows("ann", ".top .place")
            at.check_faults()
            assert "eyJ" not in server.log.read_text()
    print("a person signs in with an identity provider")


def of_embedder(source: str) -> None:
    """The kind of examples/own-kind has a list, forms, its action and a delete, and its server no sessions."""
    with own_kind.serving() as (url, organization):
        with browser(types.SimpleNamespace(url=url, token="any"), source) as at:
            at.page.get(f"{url}/console")
            at.fill("input[type=password]", "any")
            at.keys(Keys.ENTER)
            at.settled("Hierarchy")
            assert "Tickets" in at.text(".side"), at.text(".side")
            at.go("/tickets?f.state=STATE_DONE", "Tickets")
            at.shows("water the plants", "main table")
            at.audit("tickets")
            at.go(f"/tickets/new?parent={organization}", "New ticket")
            at.press("Create")
            at.shows("required", ".problem")
            at.fill("[data-path=title]", "sweep")
            at.press("Create")
            at.settled("sweep")
            at.press("Edit", ".head")
            at.settled("Edit sweep")
            # The title is the name of a ticket, in headings and lists, and always text.
            at.fill("[data-path=title]", EVIL)
            at.shows("updateMask=title", ".curl")
            at.press("Save changes")
            at.settled(EVIL)
            assert at.page.title.startswith(EVIL) and not at.page.find_elements(By.CSS_SELECTOR, "main img, main script")
            at.go(f"/tickets?{urllib.parse.urlencode({'f.title': EVIL})}", "Tickets")
            at.shows(EVIL, "main tbody th")
            at.press(EVIL, "main tbody")
            at.settled(EVIL)
            at.press("Close", ".head")
            at.press("Close", "dialog")
            at.shows("Done", ".card")
            at.audit("ticket")
            at.press("Delete", ".head")
            at.press("Delete", "dialog")
            at.wait.until(lambda page: "/tickets/item" not in page.execute_script("return location.hash"))
            at.go(f"/tickets?{urllib.parse.urlencode({'f.title': EVIL})}", "Tickets")
            at.shows("No tickets match")
            at.check_faults()
    print("a kind of an embedder has its screens")


def link_at_start() -> None:
    """`serve` prints a link only on a terminal, and only where no other machine can open it."""

    def output(*more: str) -> str:
        ours, theirs = pty.openpty()
        with tempfile.TemporaryDirectory() as folder:
            command = [binary(), "--store", "memory", "--data-dir", folder, *more]
            with subprocess.Popen(command, stdout=theirs, stderr=subprocess.DEVNULL) as process:
                os.close(theirs)
                text = ""
                while "Authorization" not in text:
                    text += os.read(ours, 65536).decode()
                process.terminate()
                return text + everything(ours)

    assert "/console#link=" in output("--listen", "127.0.0.1:0")
    # A server on another address has a public URL.
    for address in ("0.0.0.0:0", "127.0.0.1:0"):
        assert "#link=" not in output("--listen", address, "--public-url", "http://127.0.0.1:1"), address
    with tempfile.TemporaryDirectory() as folder:
        command = [binary(), "--store", "memory", "--data-dir", folder, "--listen", "127.0.0.1:0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            lines = [process.stdout.readline()]
            while "Authorization" not in lines[-1]:
                lines.append(process.stdout.readline())
            process.terminate()
            rest = process.stdout.read()
    assert "#link=" not in "".join(lines) + rest


def turned_off(data: pathlib.Path) -> None:
    with serving(data, "memory", "--console=false") as server:
        for path in ("/console", "/console/main.js", "/console/session"):
            try:
                urllib.request.urlopen(server.url + path, timeout=30)
                raise AssertionError(f"{path} is served with --console=false")
            except urllib.error.HTTPError as error:
                assert error.code == 404, error
        with urllib.request.urlopen(server.url + "/", timeout=30) as reply:
            assert "console" not in json.load(reply)


def main() -> None:
    source = axe()
    with tempfile.TemporaryDirectory() as folder:
        data = pathlib.Path(folder)
        if os.environ.get("PLATFORM_CONSOLE_ONLY") == "repos":
            many_repos(source, data)
            return
        turned_off(data)
        link_at_start()
        with serving(data, "memory", "--allow-http-sinks", "--allow-private-sinks") as server, browser(server, source) as at:
            sign_in(at)
            uid = change(at)
            repo_screens(at, uid)
            pictures(at)
            iam_screens(at)
            event_screens(at)
            dead_letters(at)
            by_keyboard(at)
            changed_by_keyboard(at)
            every_list(at)
            every_form(at)
            at.go("/nosuch", "Not found")
            at.go(f"/repos/item?uid={server.organization}/0123456789abcdef", "Not found")
            at.check_faults()
            assert server.token not in server.log.read_text()
            print(f"every screen works and is clean by axe-core ({at.audited} audits)")
        jobs(source)
        by_provider(source)
        of_embedder(source)
        many_repos(source, data)


if __name__ == "__main__":
    main()
