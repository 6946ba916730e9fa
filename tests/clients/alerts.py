"""Checks deploy/prometheus and deploy/grafana with Debian's promtool, and that Prometheus has the latencies of a server."""

import contextlib
import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request

from server import ROOT, running

CONFIG = ROOT / "deploy" / "prometheus" / "prometheus.yml"
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


@contextlib.contextmanager
def prometheus(program: pathlib.Path, address: str):
    """Starts Prometheus with the configuration of the repository, which scrapes the address. Yields its URL."""
    config = CONFIG.read_text()
    assert config.count("127.0.0.1:9464") == 2, config
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "rules.yml").write_text(RULES.read_text())
        (pathlib.Path(folder) / "prometheus.yml").write_text(config.replace("127.0.0.1:9464", address).replace("5s", "1s"))
        options = ["--config.file", "prometheus.yml", "--storage.tsdb.path", "data", "--web.listen-address", "127.0.0.1:0"]
        process = subprocess.Popen([program, *options], cwd=folder, stderr=subprocess.PIPE, text=True)
        listening = None
        try:
            for line in process.stderr:
                found = re.search(r'msg="?Listening on"? .*?address=(\S+)', line)
                listening = found[1] if found else listening
                # Until then it answers with 503.
                if "ready to receive web requests" in line:
                    yield f"http://{listening}"
                    break
            else:
                raise AssertionError("Prometheus does not start")
        finally:
            process.kill()
            process.wait()


def latency(program: pathlib.Path, server, address: str) -> None:
    """Waits until the dashboard's first query of latencies has a value in Prometheus."""
    quantile = next(query for query in queries() if query.startswith("histogram_quantile(0.5, sum by (le) (rate(platform_request_s"))
    deadline = time.monotonic() + 60
    with prometheus(program, address) as url:
        question = f"{url}/api/v1/query?{urllib.parse.urlencode({'query': quantile})}"
        while True:
            server.call("GET", "/registry/v2/repos")
            with urllib.request.urlopen(question) as reply:
                result = json.load(reply)["data"]["result"]
            if result and 0 < float(result[0]["value"][1]) < 60:
                break
            assert time.monotonic() < deadline, f"{quantile} has no value: {result}"
            time.sleep(0.2)
    print("passed: Prometheus has the latencies of a server's requests")


def alerts() -> None:
    program = promtool()
    if not program:
        print("NOT RUN: the alerts and the metrics were not checked, which needs Debian's package prometheus")
        return
    subprocess.run([program, "check", "config", CONFIG], check=True, stdout=subprocess.DEVNULL)
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
        latency(program.with_name("prometheus"), server, address)
    checked = subprocess.run([program, "check", "metrics"], input=metrics, capture_output=True)
    assert checked.returncode == 0, checked
    print("passed: promtool accepts the alerts, the queries of the dashboard and the metrics of a server")
