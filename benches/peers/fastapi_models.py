"""The application of fastapi_app.py as the tutorial of FastAPI would write it, which does more of what platform-server does
for each request: it checks a bearer token, validates parameters and bodies, and describes replies by models, so that it
has an OpenAPI document. `PEERS_TOKEN` is the token.
"""

import os
import secrets
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException, Query
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, Field

from fastapi_app import PAGE, connection


class Repo(BaseModel):
    uid: str = ""
    name: Annotated[str, Field(min_length=1, max_length=200)]
    description: str = ""
    catalogTier: str | None = None
    bundles: list[str] = []
    activeTags: list[str] = []
    createTime: str | None = None
    updateTime: str | None = None


class Page(BaseModel):
    repos: list[Repo]
    totalCount: str


def caller(credentials: Annotated[HTTPAuthorizationCredentials, Depends(HTTPBearer())]) -> None:
    if not secrets.compare_digest(credentials.credentials, os.environ["PEERS_TOKEN"]):
        raise HTTPException(401)


app = FastAPI(dependencies=[Depends(caller)])


@app.get("/repos")
def page(skip: Annotated[int, Query(ge=0)] = 0) -> Page:
    database = connection()
    database.execute("BEGIN")
    (total,) = database.execute("SELECT total FROM counter").fetchone()
    repos = [Repo.model_validate_json(body) for (body,) in database.execute(PAGE, (skip,))]
    database.execute("COMMIT")
    return Page(repos=repos, totalCount=str(total))


@app.get("/repos/{uid:path}")
def one(uid: str) -> Repo:
    found = connection().execute("SELECT body FROM repo WHERE uid = ?", (uid,)).fetchone()
    if not found:
        raise HTTPException(404)
    return Repo.model_validate_json(found[0])


@app.post("/repos")
def create(repo: Repo) -> Repo:
    repo.uid = secrets.token_hex(20)
    body = repo.model_dump_json(exclude_none=True)
    connection().execute("INSERT INTO repo (uid, name, body) VALUES (?, ?, ?)", (repo.uid, repo.name, body))
    return repo
