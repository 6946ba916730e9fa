"""Checks deploy/prometheus and deploy/grafana, and the metrics of a running server, with Debian's promtool."""

import json
import pathlib
import re
import shutil
import subprocess

from server import ROOT, running

RULES = ROOT / "deploy" / "prometheus" / "rules.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "dashboard.json"
FOLDER = ROOT / "target" / "clients-promtool"


def promtool() -> pathlib.Path | None:
    """Returns promtool, unpacked from Debian's package: installed, the package would start a server."""
    found = shutil.which("promtool")
    if found:
        return pathlib.Path(found)
    program = FOLDER / "usr" / "bin" / "promtool"
    if not program.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        quiet = {"cwd": FOLDER, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        if subprocess.run(["apt-get", "download", "prometheus"], **quiet).returncode:
            return None
        package = next(FOLDER.glob("prometheus_*.deb"))
        subprocess.run(["dpkg", "-x", package, FOLDER], check=True)
        package.unlink()
    return program


def queries() -> list[str]:
    """Returns the queries of the dashboard, with values for the variables of Grafana."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    found = [target["expr"] for panel in panels for target in panel.get("targets", [])]
    assert len(found) > 20, found
    return [query.replace("$__rate_interval", "5m").replace("$instance", ".*") for query in found]


def alerts() -> None:
    program = promtool()
    if not program:
        print("NOT RUN: the alerts and the metrics were not checked, which needs Debian's package prometheus")
        return
    subprocess.run([program, "check", "rules", RULES], check=True, stdout=subprocess.DEVNULL)
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(queries())]
    # JSON is YAML.
    dashboard = FOLDER / "dashboard.yml"
    FOLDER.mkdir(parents=True, exist_ok=True)
    dashboard.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    subprocess.run([program, "check", "rules", dashboard], check=True, stdout=subprocess.DEVNULL)
    with running("--metrics-listen", "127.0.0.1:0") as server:
        server.call("GET", "/registry/v2/repos")
        address = re.search(r"serving metrics address=(\S+)", server.log.read_text())[1]
        metrics = subprocess.run(["curl", "-sf", f"http://{address}/metrics"], check=True, stdout=subprocess.PIPE).stdout
    checked = subprocess.run([program, "check", "metrics"], input=metrics, capture_output=True)
    assert checked.returncode == 0, checked
    print("passed: promtool accepts the alerts, the queries of the dashboard and the metrics of a server")
