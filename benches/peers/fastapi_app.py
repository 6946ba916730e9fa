"""The same repos as an application of FastAPI with SQLite, for run.py: lists with the exact total, gets and creates.

Written as well as the framework allows without another library: one connection per thread, a total that triggers keep,
and bodies that are stored as JSON. `PEERS_DATABASE` is the file, which run.py fills.
"""

import json
import os
import secrets
import sqlite3
import threading

from fastapi import Body, FastAPI, HTTPException, Response

SCHEMA = """
    PRAGMA journal_mode = WAL;
    CREATE TABLE IF NOT EXISTS repo (
        id INTEGER PRIMARY KEY, uid TEXT NOT NULL UNIQUE, name TEXT NOT NULL, body TEXT NOT NULL
    );
    CREATE TABLE IF NOT EXISTS counter (total INTEGER NOT NULL);
"""
INDEXES = """
    CREATE INDEX IF NOT EXISTS by_name ON repo (name, uid);
    INSERT INTO counter SELECT count(*) FROM repo;
    CREATE TRIGGER IF NOT EXISTS counted AFTER INSERT ON repo BEGIN UPDATE counter SET total = total + 1; END;
"""
PAGE = """
    SELECT body FROM (SELECT id AS place FROM repo ORDER BY name, uid LIMIT 50 OFFSET ?) JOIN repo ON id = place
    ORDER BY name, uid
"""

app = FastAPI()
threads = threading.local()


def connection() -> sqlite3.Connection:
    """Returns the connection of this thread."""
    if not hasattr(threads, "connection"):
        threads.connection = sqlite3.connect(os.environ["PEERS_DATABASE"], isolation_level=None, timeout=60)
        threads.connection.execute("PRAGMA synchronous = FULL")
    return threads.connection


def as_json(body: str) -> Response:
    return Response(body, media_type="application/json")


def read_page(skip: int) -> tuple[int, list[str]]:
    """Returns the total and the bodies of a page, of one state of the database."""
    database = connection()
    database.execute("BEGIN")
    (total,) = database.execute("SELECT total FROM counter").fetchone()
    bodies = [body for (body,) in database.execute(PAGE, (skip,))]
    database.execute("COMMIT")
    return total, bodies


def read_one(uid: str) -> str:
    """Returns the body of a repo."""
    found = connection().execute("SELECT body FROM repo WHERE uid = ?", (uid,)).fetchone()
    if not found:
        raise HTTPException(404)
    return found[0]


def insert(uid: str, name: str, body: str) -> None:
    connection().execute("INSERT INTO repo (uid, name, body) VALUES (?, ?, ?)", (uid, name, body))


@app.get("/repos")
def page(skip: int = 0) -> Response:
    total, bodies = read_page(skip)
    return as_json(f'{{"repos":[{",".join(bodies)}],"totalCount":"{total}"}}')


@app.get("/repos/{uid:path}")
def one(uid: str) -> Response:
    return as_json(read_one(uid))


@app.post("/repos")
def create(repo: dict = Body()) -> Response:
    uid = secrets.token_hex(20)
    body = json.dumps({"uid": uid, **repo})
    insert(uid, repo["name"], body)
    return as_json(body)
