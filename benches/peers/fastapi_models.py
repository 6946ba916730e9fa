"""The application of fastapi_app.py as the tutorial of FastAPI would write it, for run.py.

It does more of what platform-server does for each request: it checks a bearer token, validates parameters and bodies,
and describes replies by models, so that it has an OpenAPI document. `PEERS_TOKEN` is the token.
"""

import os
import secrets
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException, Query
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, Field

from fastapi_app import insert, read_one, read_page


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
    total, bodies = read_page(skip)
    return Page(repos=[Repo.model_validate_json(body) for body in bodies], totalCount=str(total))


@app.get("/repos/{uid:path}")
def one(uid: str) -> Repo:
    return Repo.model_validate_json(read_one(uid))


@app.post("/repos")
def create(repo: Repo) -> Repo:
    repo.uid = secrets.token_hex(20)
    insert(repo.uid, repo.name, repo.model_dump_json(exclude_none=True))
    return repo
