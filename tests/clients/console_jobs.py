"""What people come to the console for, each with the mouse and with the keyboard, wide and narrow, light and dark."""

import contextlib
import pathlib
import subprocess
import tempfile
import urllib.error
import urllib.request

from console_browser import Browser, Sink, browser, serving, sink
from console_data import Data, fill
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from server import Server, binary

SINKS = ("--allow-http-sinks", "--allow-private-sinks")
WIDE, NARROW = (1280, 800), (390, 844)


def quoted(uid: str) -> str:
    return uid.replace("/", "%2F")


def audit(at: Browser, name: str, top: int = 480) -> None:
    """Audits a screen in both sizes, one theme each. It must fit the width, and its content must begin above `top`."""
    for size, theme in ((WIDE, "light"), (NARROW, "dark")):
        at.size(*size)
        at.audit(f"job-{name}-{size[0]}", (theme,))
        assert at.run("document.documentElement.scrollWidth <= innerWidth"), f"{name} is wider than {size}"
    assert at.run("(document.querySelector('main tbody tr') ?? document.querySelector('main form')).getBoundingClientRect().top") < top, name
    at.size(*WIDE)


def rows_in_sight(at: Browser) -> int:
    return at.run("[...document.querySelectorAll('main tbody tr')].filter((one) => one.getBoundingClientRect().bottom <= innerHeight).length")


def column(at: Browser, number: int) -> list[str]:
    return at.run("[...document.querySelectorAll('main tbody tr')].map((one) => one.children[arguments[0]].innerText.trim())", number)


# Vectors of versions 2, 3.0, 3.1 and 4.0 with their base scores.
SCORES = {
    "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H": 9.8,
    "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:N/A:N/E:U/RL:O": 7.5,
    "CVSS:3.0/AV:N/AC:L/PR:N/UI:R/S:C/C:L/I:L/A:N": 6.1,
    "CVSS:3.1/AV:L/AC:H/PR:L/UI:R/S:U/C:L/I:N/A:N": 2.2,
    "AV:N/AC:L/Au:N/C:C/I:C/A:C/E:U/RL:OF/RC:UC": 10,
    "AV:N/AC:M/Au:N/C:P/I:P/A:P": 6.8,
    "CVSS:4.0/AV:N/AC:L/AT:N/PR:N/UI:N/VC:H/VI:H/VA:H/SC:N/SI:N/SA:N": 9.3,
    "CVSS:4.0/AV:N/AC:L/AT:P/PR:N/UI:P/VC:H/VI:H/VA:H/SC:L/SI:L/SA:L": 7.7,
    "CVSS:4.0/AV:L/AC:H/AT:N/PR:N/UI:A/VC:N/VI:N/VA:L/SC:H/SI:H/SA:H/E:U": 5,
    "CVSS:4.0/AV:N/AC:L/AT:N/PR:N/UI:N/VC:N/VI:N/VA:N/SC:N/SI:N/SA:N": 0,
    "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H/": 9.8,
    "(AV:N/AC:M/Au:N/C:P/I:P/A:P)": 6.8,
    "CVSS:4.0/AV:N/AC:L/AT:N/PR:N/UI:N/VC:H/VI:H/VA:H/SC:N/SI:N/SA:N/": 9.3,
    "CVSS:4.0/AV:N": None,
    "CVSS:3.1/AV:N": None,
    "low": None,
}


def scores(at: Browser) -> None:
    """The console computes the scores that the server computes."""
    script = """const [vectors, done] = arguments;
        import("/console/severity.js").then(({ scoreOf }) => done(vectors.map(scoreOf)), (error) => done(String(error)));"""
    found = at.page.execute_async_script(script, list(SCORES))
    assert found == list(SCORES.values()), found


def choose(at: Browser, name: str, value: str) -> None:
    script = "const [one] = document.getElementsByName(arguments[0]); one.value = arguments[1]; one.dispatchEvent(new Event('change', { bubbles: true }))"
    at.page.execute_script(script, name, value)


def worst_images(at: Browser) -> None:
    """From the first page to what fixes a critical vulnerability of an image, and to the vulnerability's own page."""
    at.page.get(f"{at.server.url}/console#/")
    at.settled("Vulnerabilities")
    assert rows_in_sight(at) >= 15, rows_in_sight(at)
    critical = [int(one) for one in column(at, 3)]
    assert critical == sorted(critical, reverse=True) and critical[0] > 0, critical
    counts = at.server.call("GET", "/registry/v1/vuln_reports/counts?tag=latest")["items"]
    most = max(one["count"] for item in counts for one in item["vulnCounts"] if one["severity"] == "CRITICAL")
    assert critical[0] == most, (critical[0], most)
    audit(at, "images")
    at.size(*NARROW)
    right = "document.querySelector('%s').getBoundingClientRect().right"
    assert at.run(right % "td.n-critical") <= at.run(right % ".scroll") + 1, "the numbers are not in sight"
    at.size(*WIDE)
    image = at.text("main tbody th a")
    at.point("main tbody th a")
    at.settled(image.split(":")[1])
    at.shows("Fixed in", "main table")
    # Worst first; the states of advisories come with a request of their own.
    at.wait.until(lambda page: "…" not in column(at, 5))
    assert column(at, 1)[0] == "Critical 9.8" and all(column(at, 3)), column(at, 1)
    assert any("Fixed" in one or "Open" in one or "Affected" in one for one in column(at, 5)), column(at, 5)
    audit(at, "image")
    cve = at.text("main tbody th a")
    at.point("main tbody th a")
    at.settled(cve)
    at.shows("over the network" if "9.8" in at.text(".big") else cve, "main")
    at.shows(image, "main")
    at.shows("Advisories about it", "main")
    audit(at, "cve")
    # The same with the keyboard: by vulnerability, then the first one.
    at.go("/vulnerabilities", "Vulnerabilities")
    at.tab_to("By vulnerability")
    at.keys(Keys.ENTER)
    at.wait.until(lambda page: at.text("main tbody th").startswith("CVE-"))
    at.wait.until(lambda page: "…" not in column(at, 4)[0])
    at.press("Show more")
    rows = at.run("document.querySelectorAll('main tbody tr').length")
    assert rows > 50, rows
    at.point("main tbody tr:nth-child(60) th a")
    at.shows("Advisories about it", "main")
    at.page.back()
    at.wait.until(lambda page: at.run("document.querySelectorAll('main tbody tr').length") == rows)
    assert at.run("scrollY") > 100
    first = at.text("main tbody th")
    at.page.execute_script("scrollTo(0, 0); document.querySelector('main h1').focus()")
    at.tab_to(first)
    at.keys(Keys.ENTER)
    at.settled(first)
    at.fill("#find", "nothing")
    at.go(f"/vulnerabilities?q={cve}", "Vulnerabilities")
    at.shows(image, "main tbody")


def advisories(at: Browser) -> None:
    """2,000 advisories are sorted and filtered by severity and state, and keep their place."""
    at.go("/advisories", "Advisories")
    assert at.text(".total") == "2,000" and rows_in_sight(at) >= 15, rows_in_sight(at)
    audit(at, "advisories")
    assert at.run("document.querySelector('[data-by=updateTime]').closest('th').ariaSort") == "descending"
    choose(at, "f.latestEventType", "EVENT_TYPE_FILTER_DETECTION")
    at.wait.until(lambda page: set(column(at, 2)) == {"Open"})
    at.point("[data-go=next]")
    at.wait.until(lambda page: at.run("document.querySelector('.pager input').value") == "2")
    assert at.run("scrollY") < 200, "the next page begins at its top"
    name = at.text("main tbody tr:nth-child(30) th")
    at.point("main tbody tr:nth-child(30) th a")
    at.settled(name)
    at.page.back()
    at.wait.until(lambda page: at.run("document.activeElement.textContent") == name, "the focus is not where it was")
    assert at.run("scrollY") > 100 and at.run("document.querySelector('.pager input').value") == "2"
    at.page.refresh()
    at.settled("Advisories")
    at.wait.until(lambda page: set(column(at, 2)) == {"Open"} and at.run("document.querySelector('.pager input').value") == "2")
    # Back leads through the list: its first page, then all states.
    at.page.back()
    at.wait.until(lambda page: at.run("document.querySelector('.pager input')?.value") == "1")
    at.page.back()
    at.wait.until(lambda page: at.text(".total") == "2,000")
    # The page orders and filters by severity.
    at.point("[data-by=severity]")
    at.wait.until(lambda page: set(column(at, 1)) == {"Critical 9.8"})
    assert at.text(".total") == "2,000"
    choose(at, "f.severity", "high")
    at.wait.until(lambda page: set(column(at, 1)) == {"High 7.5"})
    at.point("[data-by=state]")
    at.wait.until(lambda page: set(column(at, 2)) == {"Open"})
    assert 0 < int(at.text(".total")) < 2000, at.text(".total")


def access(at: Browser, data: Data) -> None:
    """A colleague gets read access to a group, and it is taken away, in words."""
    group = data.groups["acme/payments"]
    at.go(f"/groups/item?uid={quoted(group)}", "payments")
    at.press("Who has access", ".head")
    at.settled("Access")
    at.shows("Role bindings that count here")
    audit(at, "access")
    at.tab_to("Give access")
    at.keys(Keys.ENTER)
    at.tab_to("[name=identityUid]", 5)
    at.keys("acme/lin")
    at.tab_to("[name=roleUid]", 5)
    at.keys("viewer", Keys.TAB)
    at.shows("lin becomes viewer at payments", "dialog")
    at.shows("New there", "dialog .effect")
    at.audit("job-give", ("light",))
    at.fill("dialog [name=identityUid]", "globex/sam")
    at.keys(Keys.TAB)
    at.shows("This would have no effect: sam was created in another group", "dialog .effect")
    at.fill("dialog [name=identityUid]", "acme/lin")
    at.keys(Keys.TAB)
    at.shows("lin becomes viewer at payments", "dialog")
    at.tab_to("Give", 5)
    at.keys(Keys.ENTER)
    at.gone("dialog")
    at.shows("lin", "main table")
    assert at.server.call("GET", f"/access/v1/bindings?uid={quoted(group)}&identityUid={quoted(data.identities['lin'])}&capability=repo.list")["decision"] == "ALLOWED"
    at.point("[aria-label='Remove viewer from lin']")
    at.shows("Remove viewer from lin at payments?", "dialog")
    at.shows("Lost at payments", "dialog .effect")
    at.audit("job-remove", ("dark",))
    at.point("dialog button.danger")
    at.gone("dialog")
    at.wait.until(lambda page: "lin" not in at.text("main table"))


def denied(at: Browser, data: Data) -> None:
    """Why a robot is denied: what is missing, the bindings that it has, and the roles that would do."""
    at.go("/access", "Access")
    for name, value in (("uid", "acme/payments"), ("identityUid", "robot"), ("capability", "repo.list")):
        at.fill(f"[name={name}]", value)
    at.keys(Keys.ENTER)
    at.shows("Not allowed", ".note")
    at.shows("This place is not in that group.", "main table")
    at.shows("viewer", ".choices-list")
    audit(at, "denied", 760)
    # A path of names of any resource is a place, and a role that is too small says so.
    at.fill("[name=uid]", "acme/web/nginx-web")
    at.fill("[name=capability]", "repo.delete")
    at.keys(Keys.ENTER)
    at.shows("The role viewer does not have repo.delete.", "main table")
    at.go("/roleBindings", "Role bindings")
    at.fill("[name='f.identity']", "robot")
    at.keys(Keys.ENTER)
    at.wait.until(lambda page: at.text(".total") == "1", "filters take names, too")
    at.go("/access", "Access")
    at.fill("[name=uid]", "nowhere")
    at.keys(Keys.ENTER)
    at.shows("no group that you can see has this name", ".problem")


def kept(at: Browser, data: Data) -> None:
    """What was typed is not lost: names instead of uids, a question before leaving, and what is in the way of a delete."""
    at.go("/repos/new", "New repo")
    at.fill("[data-path=parent]", "pay")
    at.fill("[data-path=name]", "typed")
    at.press("Create")
    at.shows("acme/payments", ".problem")
    at.point(".side a[data-key=tags]")
    at.shows("Leave without saving?", "dialog")
    at.audit("job-leave", ("light",))
    at.press("Stay", "dialog")
    at.gone("dialog")
    assert at.run("document.querySelector('[data-path=name]').value") == "typed" and "/repos/new" in at.page.current_url
    at.fill("[data-path=parent]", "acme/payments")
    at.press("Create")
    at.settled("typed")
    at.shows("payments", ".crumbs")
    at.press("Edit", ".head")
    at.settled("Edit typed")
    at.fill("[data-path=description]", "not saved")
    at.page.back()
    at.press("Leave", "dialog")
    at.settled("typed")
    assert "not saved" not in at.text(".head")
    at.go(f"/groups/item?uid={quoted(data.groups['acme'])}", "acme")
    at.press("Delete", ".head")
    at.shows("In the way are:", "dialog")
    for text in ("2 groups", "21 repos", "4 identities", "667 advisories"):
        at.shows(text, "dialog")
    assert not at.find("dialog button.danger").is_enabled()
    at.audit("job-in-the-way", ("dark",))
    at.press("2 groups", "dialog")
    at.settled("Groups")
    assert at.text(".total") == "2"


def found(at: Browser, data: Data) -> None:
    """The key / finds resources of all kinds by a part of a name or of another text that identifies them, or by a uid."""
    at.go("/hierarchy", "Hierarchy")
    at.keys("/")
    assert at.run("document.activeElement.id") == "find"
    at.keys("ngi", Keys.ENTER)
    at.settled("ngi")
    at.shows("nginx-web", "main")
    assert not at.page.find_elements(By.CSS_SELECTOR, "main .alert"), at.text()
    audit(at, "find")
    at.keys("/", "acme", Keys.ENTER)
    at.settled("acme")
    at.shows("Groups", "main h2")
    uid = at.run("new URLSearchParams(document.querySelector('main tbody a').hash.split('?')[1]).get('uid')")
    at.fill("#find", uid)
    at.keys(Keys.ENTER)
    at.settled(uid)
    at.shows("acme", "main tbody")
    # So are advisories and vulnerabilities by a CVE, and persons by an email address.
    at.fill("#find", "CVE-2026-10007")
    at.keys(Keys.ENTER)
    at.shows("CGA-0007", "main")
    at.press("CVE-2026-10007", "main tbody")
    at.settled("CVE-2026-10007")
    at.shows("Advisories about it", "main")
    server, group = at.server, data.groups["acme/payments"]
    viewer = next(one["uid"] for one in server.call("GET", "/iam/v2/roles?name=viewer")["roles"])
    body = {"roleUid": viewer, "ttl": "3600s", "email": "lin@example.com"}
    server.call("POST", f"/iam/v2/groupInvites/{quoted(group)}", body)
    at.fill("#find", "lin@exam")
    at.keys(Keys.ENTER)
    at.settled("lin@exam")
    at.shows("Group invites", "main h2")
    at.shows("lin@example.com", "main tbody")


def happened(at: Browser, data: Data) -> None:
    """What happened to an event: a test event, its request and its response, and redelivery, by mouse and keyboard."""
    server, payments = at.server, data.groups["acme/payments"]
    # A sink that is gone pauses the subscription, so that nothing happens by itself.
    with sink(410) as url:
        subscription = server.call("POST", f"/events/v2/subscriptions/{quoted(payments)}", {"sink": url})["uid"]
        at.go(f"/subscriptions/item?uid={quoted(subscription)}", "127.0.0.1")
        at.press("Send test event", ".head")
        at.shows("One event is sent to", "dialog")
        at.audit("job-test-event", ("dark",))
        at.point("dialog button.primary")
        # The result is the page of the delivery.
        at.settled("events.subscription.test.v1")
        at.gone("dialog")
        for text in ("the sink responded with status 410", "Delivery is paused."):
            at.shows(text, ".facts")
        for text in ("ce-id", "(removed)", "x-receiver", "answered with 410", '"uid"'):
            at.shows(text, "main")
        at.go(f"/subscriptions/item?uid={quoted(subscription)}", "127.0.0.1")
        at.shows("1 event waits for delivery", ".facts")
        at.go(f"/deliveries?under={quoted(subscription)}", "Deliveries")
        at.shows("1 event waits for delivery", ".facts")
        at.point("main tbody th a")
        at.settled("events.subscription.test.v1")
        at.shows("answered with 410", "main")
        assert "hush" not in at.text("main") and "Bearer" not in at.text("main")
        audit(at, "delivery")
        # With the keyboard: the event is attempted again now, and the page shows it.
        Sink.status = 204
        at.page.execute_script("scrollTo(0, 0); document.querySelector('main h1').focus()")
        at.tab_to("Redeliver")
        at.keys(Keys.ENTER)
        at.shows("The event is attempted again now", "dialog")
        at.tab_to("Redeliver", 5)
        at.keys(Keys.ENTER)
        at.gone("dialog")
        at.shows("The sink acknowledged the event with status 204", ".facts")
        assert "Redeliver" not in at.text(".head .buttons"), "a delivered event is not stored"
        # The strip of the subscription leads to the same page.
        at.go(f"/subscriptions/item?uid={quoted(subscription)}", "127.0.0.1")
        at.shows("Delivered", "main")
        at.shows("No events wait for delivery", ".facts")
        at.point("svg.chart rect")
        at.settled("events.subscription.test.v1")
        event = at.run("[...document.querySelectorAll('dl.fields dt')].find((one) => one.textContent === 'Event id').nextSibling.textContent")
        assert event in Sink.delivered, (event, Sink.delivered)
        # The state of the delivery changes by itself while the page is open.
        at.go(f"/subscriptions/item?uid={quoted(subscription)}", "127.0.0.1")
        at.shows("Active", "main")
        Sink.status = 410
        repo = server.call("POST", f"/registry/v2/repos/{quoted(payments)}", {"name": "event"})["uid"]
        at.shows("Paused", "main")
        server.call("DELETE", f"/registry/v2/repos/{quoted(repo)}")
        server.call("DELETE", f"/events/v2/subscriptions/{quoted(subscription)}")


# Keeps the signals of the streams that the page opens.
SPY = """
    window.streams = [];
    const send = window.fetch;
    window.fetch = (url, options) => {
        if (url.includes("watch=")) window.streams.push(options.signal);
        return send(url, options);
    };"""
KEPT_BACK = """
    window.released = window.fetch;
    window.fetch = (url, options) => (url.includes("watch=") ? new Promise(() => {}) : window.released(url, options));"""
HIDE = """
    Object.defineProperty(document, "hidden", { value: arguments[0], configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));"""
OPEN = "window.streams.filter((one) => !one.aborted).length"


def followed(at: Browser, data: Data) -> None:
    """A list shows what others change while it is open, and moves no row for it; also on a page of a long one."""
    server, web = at.server, data.groups["acme/web"]
    path = f"/registry/v2/repos/{quoted(web)}"
    uids = {name: server.call("POST", path, {"name": name})["uid"] for name in (f"live-{number:02}" for number in range(30))}

    def update(name: str, description: str) -> None:
        server.call("PATCH", f"/registry/v2/repos/{quoted(uids[name])}", {"description": description})

    def names() -> list[str]:
        return at.run("[...document.querySelectorAll('main tbody th')].map((one) => one.innerText.trim())")

    def tops() -> list[float]:
        return at.run("[...document.querySelectorAll('main tbody tr')].map((one) => one.getBoundingClientRect().top)")

    at.page.execute_script(SPY)
    at.go(f"/repos?under={quoted(web)}&size=20&page=2", "Repos")
    at.wait.until(lambda _: "live-20" in names())
    assert at.run(OPEN) == 1
    # A change of what is on the page: the row stays where it is, and keeps the focus.
    at.page.execute_script("[...document.querySelectorAll('main tbody th a')].find((one) => one.textContent === 'live-20').focus()")
    before, places = names(), tops()
    update("live-20", "changed by somebody else")
    at.shows("changed by somebody else", "main tbody")
    assert at.row() == "live-20" and names() == before and tops() == places
    # What is new is counted and not inserted; what is deleted is struck.
    fresh = [server.call("POST", path, {"name": f"live-15-{number}"})["uid"] for number in range(3)]
    at.shows("3 new repos.", ".news")
    server.call("DELETE", f"/registry/v2/repos/{quoted(fresh.pop())}")
    at.shows("2 new repos.", ".news")
    server.call("DELETE", f"/registry/v2/repos/{quoted(uids['live-21'])}")
    at.wait.until(lambda _: at.run("document.querySelector('tr.gone th')?.innerText") == "live-21")
    assert names() == before and tops() == places
    audit(at, "live")
    at.point(".news button")
    at.wait.until(lambda _: "live-21" not in names() and not at.text(".news"))
    assert at.run("document.querySelector('.pager input').value") == "2" and at.run(OPEN) == 1
    # With the keyboard.
    server.call("POST", path, {"name": "live-99"})
    at.shows("1 new repo.", ".news")
    at.tab_to("Show")
    at.keys(Keys.ENTER)
    at.wait.until(lambda _: "live-99" in names() and not at.text(".news"))
    # Out of sight, it is not followed, and afterwards it has missed nothing.
    at.page.execute_script(HIDE, True)
    assert at.run(OPEN) == 0
    update("live-20", "changed meanwhile")
    at.page.execute_script(HIDE, False)
    at.shows("changed meanwhile", "main tbody")
    assert at.run(OPEN) == 1
    # A list of more than 8 organizations, or in none, is refused, and a screen that is left ends its stream.
    at.go("/roles", "Roles")
    at.shows("viewer", "main tbody")
    assert not at.text(".news")
    at.wait.until(lambda _: at.run(OPEN) == 0)
    # A proxy that keeps back the first event of the watch does not keep the list from being shown.
    at.page.execute_script(KEPT_BACK)
    at.go(f"/repos?under={quoted(web)}", "Repos")
    at.shows("live-20", "main tbody")
    at.page.execute_script("window.fetch = window.released")
    for uid in (*fresh, *uids.values()):
        with contextlib.suppress(urllib.error.HTTPError):
            server.call("DELETE", f"/registry/v2/repos/{quoted(uid)}")


def token_of(server: Server, identity: str, *more: str) -> str:
    command = [binary(), "token", *more, "--identity", identity, "--data-dir", str(server.data), "--public-url", server.url]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def accepted(server: Server, token: str) -> str:
    """Returns a token that the server accepts; an empty text for another one."""
    request = urllib.request.Request(f"{server.url}/auth/v1/ok", headers={"Authorization": f"Bearer {token}"})
    try:
        urllib.request.urlopen(request, timeout=30).close()
    except urllib.error.HTTPError as error:
        if error.code != 401:
            raise
        return ""
    return token


def as_viewer(at: Browser, data: Data) -> None:
    """A viewer sees a name in the header and no buttons that would fail; a session that ends keeps what was typed."""
    server, payments = at.server, data.groups["acme/payments"]
    at.press("Sign out", ".top")
    at.shows("Sign in", "h1")
    at.sign_in(token_of(server, data.identities["grace"]))
    at.shows("grace", ".top")
    at.go(f"/groups/item?uid={quoted(payments)}", "payments")
    buttons = at.run("[...document.querySelectorAll('main button, main a.button')].map((one) => one.textContent.trim())")
    assert not {"Edit", "Delete", "New repo", "New group"} & set(buttons), buttons
    # A denial leads to its explanation.
    at.go(f"/groups/edit?uid={quoted(payments)}", "Edit payments")
    at.fill("[data-path=description]", "typed by grace")
    at.press("Save changes")
    for text in ("You lack groups.update at payments.", "Roles that have it:", "owner", "viewer at payments"):
        at.shows(text, "[role=alert]")
    at.press("Why, and who can change it", "[role=alert]")
    at.press("Stay", "dialog")
    at.gone("dialog")
    server.call("POST", f"/iam/v2/identities/{quoted(data.identities['grace'])}:revokeTokens", {})
    at.press("Save changes")
    at.shows("Your session has ended", "main")
    at.audit("job-ended", ("light",))
    at.fill("input[type=password]", "wrong")
    at.keys(Keys.ENTER)
    at.shows("Not authenticated", "[role=alert]")
    # A token of the second of the revocation is revoked, too.
    token = at.wait.until(lambda _: accepted(server, token_of(server, data.identities["grace"])))
    at.fill("input[type=password]", token)
    at.keys(Keys.ENTER)
    at.settled("Edit payments")
    assert at.run("document.querySelector('[data-path=description]').value") == "typed by grace"


def jobs(source: str) -> None:
    with tempfile.TemporaryDirectory() as folder, serving(pathlib.Path(folder), "memory", *SINKS) as server:
        data = fill(server)
        with browser(server, source) as at:
            at.size(*WIDE)
            at.sign_in(server.token)
            scores(at)
            worst_images(at)
            advisories(at)
            access(at, data)
            denied(at, data)
            kept(at, data)
            found(at, data)
            happened(at, data)
            followed(at, data)
            as_viewer(at, data)
            at.check_faults()
            print(f"the console answers what people ask ({at.audited} audits)")
