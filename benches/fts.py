#!/usr/bin/env python3
"""Measures SQLite FTS5 with its trigram tokenizer, written by hand, on the names of
`cargo run --release -p platform-store-sqlite --example sqlite_search`.

    fts.py [RECORDS]

Needs a SQLite with FTS5 in Python's `sqlite3`, from version 3.34 on.
"""

import os
import sqlite3
import statistics
import sys
import tempfile
import time

WORDS = (
    "nginx redis python node postgres kafka envoy grafana prometheus vault consul etcd fluent istio jenkins keycloak loki "
    "mariadb minio mysql nats opensearch php rabbitmq ruby rust traefik tomcat wolfi zookeeper airflow argocd"
).split()
GROUP = "63921b2c44617e3f2603851537be0123af4a57d7"
MASK = (1 << 64) - 1


def mix(number):
    mixed = number * 0x9E37_79B9_7F4A_7C15 & MASK
    return (mixed ^ (mixed >> 29)) * 0xBF58_476D_1CE4_E5B9 & MASK


def name(number):
    mixed = mix(number)
    return f"{WORDS[(mixed >> 20) % 32]}-{WORDS[(mixed >> 40) % 32]}-{mix(number + 7) >> 40:06x}"


def record(number):
    uid = f"{GROUP}/{mix(number):016x}"
    return uid, name(number), f'{{"uid":"{uid}","name":"{name(number)}","text":"{"x" * 190}"}}'


def median(times, work):
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken) * 1e6


def main():
    records = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "fts.db")
        database = sqlite3.connect(path, isolation_level=None)
        size = lambda: os.path.getsize(path) / records
        database.executescript(
            "PRAGMA journal_mode = WAL; CREATE TABLE repo (id INTEGER PRIMARY KEY, uid TEXT, name TEXT, body TEXT);"
            "CREATE INDEX by_name ON repo (name, uid); CREATE INDEX by_uid ON repo (uid);"
        )
        database.execute("BEGIN")
        database.executemany("INSERT INTO repo (uid, name, body) VALUES (?, ?, ?)", map(record, range(records)))
        database.execute("COMMIT")
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        before = size()
        database.executescript(
            "CREATE VIRTUAL TABLE search USING fts5(name, tokenize = 'trigram', content = '');"
            "INSERT INTO search (rowid, name) SELECT id, name FROM repo; INSERT INTO search (search) VALUES ('optimize');"
            "PRAGMA wal_checkpoint(TRUNCATE)"
        )
        print(f"SQLite {sqlite3.sqlite_version}: {size() - before:.0f} bytes a record for FTS5, of {size():.0f}")
        one = name(17)
        for order in ("uid", "name, uid"):
            print(f"by {order}:")
            for part in (one[-5:], "a3f", "nginx-redis", "ginx-", "rust"):
                phrase = (f'"{part}"',)
                page = (
                    "SELECT body FROM repo WHERE id IN (SELECT rowid FROM search WHERE search MATCH ?) "
                    f"ORDER BY {order} LIMIT 50"
                )
                count = "SELECT count(*) FROM search WHERE search MATCH ?"
                total = database.execute(count, phrase).fetchone()[0]
                first = median(50, lambda: database.execute(page, phrase).fetchall())
                both = median(
                    50, lambda: (database.execute(page, phrase).fetchall(), database.execute(count, phrase).fetchone())
                )
                print(f"  {part}: {total}: page {first:.0f} us, with the total {both:.0f} us")


main()
