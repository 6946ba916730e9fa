#!/usr/bin/env bash
# pgpool-II 4.3.5 with backend_clustering_mode = 'raw': a statement with parameters that writes outside of a transaction is
# acknowledged, but pgpool has begun a transaction for it, which it never commits. ReadyForQuery says so (status T), which
# clients do not look at in autocommit mode. In the mode 'streaming_replication' the statement is committed. Found by a
# server whose new keys could not be read back. Needs PostgreSQL, pgpool2 and Python's venv, of Debian; run it as root.
set -eu
work=$(mktemp -d)
bin=$(dirname "$(ls -d /usr/lib/postgresql/*/bin/initdb | tail -1)")
chown postgres "$work"
run() { (cd "$work" && runuser -u postgres -- "$@"); }
stop() {
  run "$bin/pg_ctl" -D "$work/data" -m immediate stop >/dev/null || true
  rm -rf "$work"
}
trap stop EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet 'psycopg[binary]==3.3.2'
run "$bin/initdb" -D "$work/data" --auth=trust --no-sync >/dev/null
run "$bin/pg_ctl" -D "$work/data" -w -l "$work/log" -o "-p 54999 -c listen_addresses=127.0.0.1 -k $work" start >/dev/null
cat > "$work/insert.py" <<'PYTHON'
import psycopg

settings = {"host": "127.0.0.1", "user": "postgres", "dbname": "postgres", "autocommit": True}
direct, pooled = psycopg.connect(port=54999, **settings), psycopg.connect(port=54998, **settings)
direct.execute("CREATE TABLE IF NOT EXISTS t (a int)")
direct.execute("TRUNCATE t")
acknowledged = pooled.execute("INSERT INTO t VALUES (%s)", (1,)).statusmessage
pooled.close()
print(acknowledged, "rows", direct.execute("SELECT count(*) FROM t").fetchone()[0])
PYTHON
found=$(
  for mode in raw streaming_replication; do
    cat > "$work/pgpool.conf" <<CONF
backend_clustering_mode = '$mode'
listen_addresses = '127.0.0.1'
port = 54998
pcp_port = 54997
unix_socket_directories = '$work'
pcp_socket_dir = '$work'
pid_file_name = '$work/pgpool.pid'
work_dir = '$work'
backend_hostname0 = '127.0.0.1'
backend_port0 = 54999
sr_check_period = 0
CONF
    run pgpool -n -f "$work/pgpool.conf" >"$work/pgpool.log" 2>&1 &
    until "$bin/psql" -h 127.0.0.1 -p 54998 -U postgres -c 'select 1' >/dev/null 2>&1; do sleep 0.2; done
    echo "$mode: $("$work/venv/bin/python" "$work/insert.py")"
    run pgpool -f "$work/pgpool.conf" -m immediate stop >/dev/null 2>&1
    wait
  done
)
expected='raw: INSERT 0 1 rows 0
streaming_replication: INSERT 0 1 rows 1'
echo "$found"
[ "$found" = "$expected" ]
